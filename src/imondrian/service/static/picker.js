// Selection of the features in the chart, if there are too many to show all.

import { byId, make, setText } from "./dom.js";

const MAX_WITHOUT_PICKER = 8; // up to this many features are all shown
const N_PRESELECTED = 6;
const MAX_COUNT = 12;

export class Picker {
  #features = [];
  #boxes = [];
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
    byId("picker-list").addEventListener("change", () => {
      this.#limit();
      this.#onChange();
    });
  }

  get shown() {
    return this.#boxes.length === 0 ? this.#features : this.#features.filter((_, i) => this.#boxes[i].checked);
  }

  reset(features) {
    const isMany = features.length > MAX_WITHOUT_PICKER;
    this.#features = features;
    this.#boxes = isMany ? features.map((_, i) => make("input", { type: "checkbox", checked: i < N_PRESELECTED })) : [];
    const list = byId("picker-list");
    list.replaceChildren(list.firstElementChild, ...this.#boxes.map((box, i) => make("label", { className: "check" }, box, features[i])));
    byId("picker").hidden = !isMany;
    byId("picker").open = false;
    this.#limit();
  }

  #limit() {
    const n = this.shown.length;
    for (const box of this.#boxes) box.disabled = n >= MAX_COUNT && !box.checked;
    setText(byId("picker-title"), `${n} of ${this.#features.length} features in the chart (maximum ${MAX_COUNT})`);
  }
}
