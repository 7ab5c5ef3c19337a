// Table rows with a button in the first cell.

import { make } from "./dom.js";

export function headRow(titles) {
  return make("tr", {}, ...titles.map((title) => make("th", { scope: "col", textContent: title })));
}

export function buttonRow(label, description, cells, onOpen) {
  const button = make("button", { type: "button", className: "open-row", textContent: label });
  button.setAttribute("aria-label", description);
  button.addEventListener("click", () => onOpen(button));
  return make("tr", {}, make("td", {}, button), ...cells.map((text) => make("td", { textContent: text })));
}

export function selectRow(rows, chosen) {
  for (const row of rows) {
    if (row === chosen) row.querySelector("button").setAttribute("aria-current", "true");
    else row.querySelector("button").removeAttribute("aria-current");
  }
}
