// The rules for single features in the settings form: on which side a value counts, and up to which distance from the expected value it does not count.

import { byId, make } from "./dom.js";
import { numberOrText, visible } from "./format.js";

const SIDES = { both: "high or low", high: "only high", low: "only low" };

export class FeatureRules {
  #fields = []; // of each feature that is a number: its name, and the elements for its rules

  show({ features, categorical, side, ignore_within: ignoreWithin }) {
    const names = features.filter((name) => !categorical.includes(name));
    this.#fields = names.map((name) => ({ name, side: sideSelect(name, ruleOf(side, name, "both")), distance: distanceInput(name, ruleOf(ignoreWithin, name, "")) }));
    byId("change-rules").replaceChildren(...this.#fields.map(row));
    byId("change-features").hidden = names.length === 0;
  }

  settings() {
    const sides = this.#fields.filter(({ side }) => side.value !== "both").map(({ name, side }) => [name, side.value]);
    const distances = this.#fields.filter(({ distance }) => distance.value.trim() !== "").map(({ name, distance }) => [name, numberOrText(distance.value)]);
    return { side: Object.fromEntries(sides), ignore_within: Object.fromEntries(distances) };
  }
}

function ruleOf(rules, name, otherwise) {
  return Object.hasOwn(rules, name) ? rules[name] : otherwise; // a feature may be called "constructor"
}

function row({ name, side, distance }) {
  const shown = visible(name);
  return make("tr", {}, make("th", { scope: "row", textContent: shown, title: shown }), make("td", {}, side), make("td", {}, distance));
}

function sideSelect(name, value) {
  const options = Object.entries(SIDES).map(([key, words]) => make("option", { value: key, textContent: words }));
  const select = make("select", { ariaLabel: `Side of ${visible(name)}` }, ...options);
  select.value = value;
  return select;
}

function distanceInput(name, value) {
  return make("input", { value: String(value), ariaLabel: `Ignore ${visible(name)} within`, placeholder: "nothing", autocomplete: "off", spellcheck: false });
}
