// Tables whose rows open something: a button in the first cell.

import { make } from "./dom.js";

export function headRow(titles) {
  return make("tr", {}, ...titles.map((title) => make("th", { scope: "col", textContent: title })));
}

export function openingRow(label, about, cells, onOpen) {
  const button = make("button", { type: "button", className: "opening", textContent: label });
  button.setAttribute("aria-label", about);
  button.addEventListener("click", () => onOpen(button));
  return make("tr", {}, make("td", {}, button), ...cells.map((text) => make("td", { textContent: text })));
}

export function markRow(rows, chosen) {
  for (const row of rows) {
    if (row === chosen) row.querySelector("button").setAttribute("aria-current", "true");
    else row.querySelector("button").removeAttribute("aria-current");
  }
}
