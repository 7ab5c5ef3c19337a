// A table that was scored: how many rows are odd, which, why, and the file to take away.

import * as api from "./api.js";
import { Chart } from "./charts.js";
import { write } from "./csv.js";
import { byId, setText } from "./dom.js";
import { count, counted, isThreshold, score } from "./format.js";
import { rowsInADot, scoreFigure } from "./score_chart.js";
import { headRow, markRow, openingRow } from "./tables.js";
import { Why } from "./why.js";

const N_ODDEST = 50;
const N_COLUMNS = 30;
const HINT = "Choose a row in the chart or in the table to see which features make it odd.";

export class Scored {
  #result = null;
  #rows = new Map(); // of the table, by place
  #address = null;
  #why = new Why("scored-why", HINT, () => this.#mark(null));
  #chart = new Chart(byId("scored-chart"), (theme) => this.#result && scoreFigure(theme, this.#result), (place) => this.#explain(place));

  show(result) {
    this.#result = result;
    byId("scored").hidden = false;
    this.#why.clear();
    this.#summarise();
    this.#fillTable();
    this.#offer();
    this.#chart.draw();
  }

  clear() {
    this.#result = null;
    byId("scored").hidden = true;
    setText(byId("scored-summary"), "");
    if (this.#address !== null) URL.revokeObjectURL(this.#address);
    this.#address = null;
  }

  #summarise() {
    const { scores, anomalies, threshold, indices, table, name, isWarm } = this.#result;
    const nOdd = anomalies.filter(Boolean).length;
    const limit = indices === null ? ` ${score(threshold)}` : "";
    const part = `${count(nOdd)} of ${counted(scores.length, "row")}`;
    setText(byId("scored-summary"), `${part} ${nOdd === 1 ? "is" : "are"} above the threshold${limit}.`);
    const notes = [`Scored by ${name}${indices === null ? "; nothing was learned" : ", then learned; the threshold moved with them"}.`];
    if (isThreshold(threshold)) notes.push("The dashed line is the threshold.");
    if (!isWarm) notes.push("The detector is still warming up: its scores mean little yet.");
    if (rowsInADot(scores.length) > 1) notes.push(`Each dot is the highest of ${rowsInADot(scores.length)} rows.`);
    if (table.header.length > N_COLUMNS) notes.push(`The table shows the first ${N_COLUMNS} columns.`);
    setText(byId("scored-hint"), notes.join(" "));
  }

  #fillTable() {
    const { scores, anomalies, table } = this.#result;
    const places = scores.map((_, place) => place).sort((a, b) => scores[b] - scores[a] || a - b).slice(0, N_ODDEST);
    setText(byId("oddest-title"), places.length === scores.length ? "All rows, the oddest first" : `The ${places.length} oddest rows`);
    byId("oddest-head").replaceChildren(headRow(["Row", "Score", "Anomaly", ...table.header.slice(0, N_COLUMNS)]));
    this.#rows = new Map(places.map((place) => [place, this.#row(place, scores[place], anomalies[place], table)]));
    byId("oddest").replaceChildren(...this.#rows.values());
  }

  #row(place, value, isOdd, table) {
    const cells = table.header.slice(0, N_COLUMNS).map((_, column) => table.rows[place][column] ?? "");
    const texts = [score(value), isOdd ? "yes" : "no", ...cells];
    const row = openingRow(count(place + 1), `Why row ${count(place + 1)} has its score`, texts, () => this.#explain(place));
    row.classList.toggle("odd", isOdd);
    return row;
  }

  #explain(place) {
    const { name, points, indices } = this.#result;
    this.#mark(place);
    return this.#why.open({
      title: `Why row ${count(place + 1)} has its score`,
      load: () => (indices === null ? api.explanation(name, points[place]) : api.explanationAt(name, indices[place])),
      lead: (found) => `Score ${score(found.anomaly_score)}. Share of it by feature:`,
      back: () => this.#rows.get(place)?.querySelector("button"),
    });
  }

  #mark(place) {
    markRow(this.#rows.values(), this.#rows.get(place));
  }

  #offer() {
    const { scores, anomalies, table, name } = this.#result;
    const records = table.rows.map((row, place) => {
      const cells = table.header.map((_, column) => row[column] ?? "");
      return [...cells, String(scores[place]), String(anomalies[place])];
    });
    const lines = write([[...table.header, "anomaly_score", "is_anomaly"], ...records], table.separator);
    if (this.#address !== null) URL.revokeObjectURL(this.#address);
    this.#address = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    const link = byId("download");
    link.href = this.#address;
    link.download = `${name}-scores.csv`;
  }
}
