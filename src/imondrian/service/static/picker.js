// Which features are in the chart, if there are too many for all.

import { byId, make, setText } from "./dom.js";

const N_FEW = 8; // so many are shown without a choice
const N_FIRST = 6;
const N_MOST = 12;

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
    const isMany = features.length > N_FEW;
    this.#features = features;
    this.#boxes = isMany ? features.map((_, i) => make("input", { type: "checkbox", checked: i < N_FIRST })) : [];
    const list = byId("picker-list");
    list.replaceChildren(list.firstElementChild, ...this.#boxes.map((box, i) => make("label", { className: "check" }, box, features[i])));
    byId("picker").hidden = !isMany;
    byId("picker").open = false;
    this.#limit();
  }

  #limit() {
    const n = this.shown.length;
    for (const box of this.#boxes) box.disabled = n >= N_MOST && !box.checked;
    setText(byId("picker-title"), `${n} of ${this.#features.length} features in the chart, at most ${N_MOST}`);
  }
}
