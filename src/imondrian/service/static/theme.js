// Colours of the charts: those of the style sheet, light or dark.

const NAMES = ["ink", "soft", "card", "line", "accent", "odd", "limit", "quiet"];

export function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

export function onThemeChange(act) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", act);
}
