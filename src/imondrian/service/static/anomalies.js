// The table of the latest anomalies, newest first.

import { byId, setText } from "./dom.js";
import { count, counted, measure, score, time } from "./format.js";
import { headRow, markRow, openingRow } from "./tables.js";

const N_MOST = 50;

export class Anomalies {
  #rows = new Map(); // by index
  #onOpen;

  constructor(onOpen) {
    this.#onOpen = onOpen;
  }

  reset(shown) {
    this.#rows.clear();
    byId("odd").replaceChildren();
    byId("odd-head").replaceChildren(headRow(["Point", "Time", "Score", ...shown]));
    byId("odd-box").hidden = true;
  }

  show(history, columns) {
    const places = history.anomalies();
    setText(byId("odd-hint"), `${count(places.length)} among the latest ${counted(history.length, "point")}`);
    const kept = places.slice(-N_MOST);
    this.#dropBefore(history.index[kept[0]] ?? Infinity);
    for (const place of kept) this.#add(history, place, columns);
    byId("odd-box").hidden = kept.length === 0;
  }

  button(index) {
    return this.#rows.get(index)?.querySelector("button");
  }

  mark(index) {
    markRow(this.#rows.values(), this.#rows.get(index));
  }

  #add(history, place, columns) {
    const index = history.index[place];
    if (this.#rows.has(index)) return;
    const values = columns.map((column) => measure(history.values[place][column]));
    const cells = [time(history.time[place]), score(history.anomaly_score[place]), ...values];
    const row = openingRow(count(index), `Why point ${count(index)} is odd`, cells, () => this.#onOpen(index));
    this.#rows.set(index, row);
    byId("odd").prepend(row);
  }

  #dropBefore(first) {
    for (const [index, row] of this.#rows) {
      if (index >= first) continue;
      row.remove();
      this.#rows.delete(index);
    }
  }
}
