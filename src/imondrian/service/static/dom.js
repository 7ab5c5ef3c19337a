// Functions that find, make and fill elements of the page, always with text, never with markup.

export function byId(id) {
  return document.getElementById(id);
}

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
