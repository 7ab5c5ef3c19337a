// The keys of a detector with a key: by surprise, by name or the latest first, with a search.

import * as api from "./api.js";
import { byId, setText } from "./dom.js";
import { integer, oneIn, score, shortened, time, visible, withUnit } from "./format.js";
import { buttonRow, headRow, selectRow } from "./table_rows.js";

const PERIOD = 3_000; // milliseconds between two requests while points arrive
const PAGE = 100; // keys
const MAX_NAME = 60; // characters of a key
const TITLES = ["Key", "State", "Surprise", "Score", "Points", "Latest"];

export class KeyList {
  #name = null;
  #keys = [];
  #limit = PAGE;
  #known = ""; // the points, the length, the order and the search of the list that is shown
  #requested = -Infinity;
  #chosen = null;
  #onChoose;

  constructor(onChoose) {
    this.#onChoose = onChoose; // called with a key
    byId("keys-head").replaceChildren(headRow(TITLES));
    byId("key-filter").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["key-search", "key-order"]) byId(id).addEventListener("input", () => this.#restart());
    byId("more-keys").addEventListener("click", () => this.#showMore());
  }

  get first() {
    return this.#keys[0]?.key ?? null;
  }

  reset(detector) {
    const isKeyed = detector.configuration.key !== null;
    byId("keys").hidden = !isKeyed;
    this.#name = isKeyed ? detector.name : null;
    this.#keys = [];
    byId("key-search").value = "";
    setText(byId("keys-title"), isKeyed ? `Keys: ${detector.configuration.key}` : "");
    this.#restart();
  }

  mark(key) {
    this.#chosen = key;
    const rows = [...byId("key-rows").children];
    selectRow(rows, rows.find(({ dataset }) => dataset.key === key));
  }

  async update(nSeen) {
    const known = `${nSeen} ${this.#limit} ${byId("key-order").value} ${byId("key-search").value}`;
    if (this.#name === null || known === this.#known || performance.now() - this.#requested < PERIOD) return;
    this.#requested = performance.now();
    const name = this.#name;
    const found = await api.keys(name, byId("key-search").value, byId("key-order").value, this.#limit);
    if (name !== this.#name) return; // another detector was selected in the meantime
    this.#known = known;
    this.#show(found);
  }

  #restart() {
    this.#limit = PAGE;
    this.#requested = -Infinity;
  }

  #showMore() {
    this.#limit = Math.min(this.#limit + PAGE, 1000);
    this.#requested = -Infinity;
  }

  #show({ keys, n_keys: nKeys, n_found: nFound, next }) {
    this.#keys = keys;
    setText(byId("keys-hint"), `${withUnit(nKeys, "key")}${nFound === nKeys ? "" : `, ${integer(nFound)} found`}`);
    byId("keys-box").hidden = keys.length === 0;
    byId("more-keys").hidden = next === null || this.#limit >= 1000;
    const focused = document.activeElement?.closest("#key-rows tr")?.dataset.key;
    byId("key-rows").replaceChildren(...keys.map((each) => this.#row(each)));
    this.mark(this.#chosen);
    if (focused !== undefined) [...byId("key-rows").children].find(({ dataset }) => dataset.key === focused)?.querySelector("button").focus();
  }

  #row({ key, n_rows: nRows, time: seconds, surprise, anomaly_score: value, has_open_incident: isOpen }) {
    const cells = [isOpen ? "incident" : "–", oneIn(surprise), score(value), integer(nRows), time(seconds)];
    const row = buttonRow(keyText(key, MAX_NAME), `Show the points of ${keyText(key)}`, cells, () => this.#onChoose(key));
    row.dataset.key = key;
    row.classList.toggle("open-incident", isOpen);
    return row;
  }
}

// A key as it is shown: line breaks and other invisible characters are replaced, and an empty key is named.
export function keyText(key, length = Infinity) {
  return key === "" ? "(empty)" : shortened(visible(key), length);
}
