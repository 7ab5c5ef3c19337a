// The table of the latest anomalies, newest first.

import { byId, setText } from "./dom.js";
import { integer, rowTime, score, surprise, valueText, withUnit } from "./format.js";
import { buttonRow, headRow, selectRow } from "./table_rows.js";

const MAX_COUNT = 50;

export class AnomalyTable {
  #rows = new Map(); // by index
  #onOpen;

  constructor(onOpen) {
    this.#onOpen = onOpen;
  }

  reset(shown) {
    this.#rows.clear();
    byId("anomalies").replaceChildren();
    byId("anomalies-head").replaceChildren(headRow(["Point", "Time", "Score", "Surprise", ...shown]));
    byId("anomalies-box").hidden = true;
  }

  show(history, columns) {
    const positions = history.anomalies();
    setText(byId("anomalies-hint"), `${integer(positions.length)} among the latest ${withUnit(history.length, "point")}`);
    const latest = positions.slice(-MAX_COUNT);
    this.#dropBefore(history.index[latest[0]] ?? Infinity);
    for (const position of latest) this.#add(history, position, columns);
    byId("anomalies-box").hidden = latest.length === 0;
  }

  button(index) {
    return this.#rows.get(index)?.querySelector("button");
  }

  mark(index) {
    selectRow(this.#rows.values(), this.#rows.get(index));
  }

  #add(history, position, columns) {
    const index = history.index[position];
    if (this.#rows.has(index)) return;
    const values = columns.map(({ column, isCategory }) => valueText(history.values[position][column], isCategory));
    const cells = [rowTime(history.own_time[position], history.time[position]), score(history.anomaly_score[position]), surprise(history.surprise[position]), ...values];
    const row = buttonRow(integer(index), `Why point ${integer(index)} is anomalous`, cells, () => this.#onOpen(index));
    this.#rows.set(index, row);
    byId("anomalies").prepend(row);
  }

  #dropBefore(first) {
    for (const [index, row] of this.#rows) {
      if (index >= first) continue;
      row.remove();
      this.#rows.delete(index);
    }
  }
}
