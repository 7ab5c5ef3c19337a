// The results of scoring a table: the number of anomalies, the highest scores, explanations, and a file to download.

import * as api from "./api.js";
import { Chart } from "./chart.js";
import { write } from "./csv.js";
import { byId, setText } from "./dom.js";
import { ExplanationPanel } from "./explanation.js";
import { integer, isThreshold, score, surprise, withUnit } from "./format.js";
import { rowsPerDot, scoreFigure } from "./score_chart.js";
import { buttonRow, headRow, selectRow } from "./table_rows.js";

const MAX_ROWS = 50;
const N_COLUMNS = 30;
const HINT = "Select a row in the chart or in the table to see which features contribute to its score.";

export class ScoreResults {
  #result = null;
  #rows = new Map(); // of the table, by position
  #address = null;
  #explanation = new ExplanationPanel("scored-explanation", HINT, () => this.#mark(null));
  #chart = new Chart(byId("scored-chart"), (theme) => this.#result && scoreFigure(theme, this.#result), (position) => this.#explain(position));

  show(result) {
    this.#result = result;
    byId("scored").hidden = false;
    this.#explanation.clear();
    this.#summarise();
    this.#fillTable();
    this.#offerDownload();
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
    const nAnomalies = anomalies.filter(Boolean).length;
    const limit = indices === null ? ` ${score(threshold)}` : "";
    const part = `${integer(nAnomalies)} of ${withUnit(scores.length, "row")}`;
    setText(byId("scored-summary"), `${part} ${nAnomalies === 1 ? "is" : "are"} above the threshold${limit}.`);
    const notes = [`Scored by ${name}${indices === null ? "; nothing was learned" : ", then learned; the threshold changed while the rows were learned"}.`];
    if (isThreshold(threshold)) notes.push("The dashed line is the threshold.");
    if (!isWarm) notes.push("The detector is still warming up: its scores are not reliable yet.");
    if (rowsPerDot(scores.length) > 1) notes.push(`Each dot is the highest score of ${rowsPerDot(scores.length)} rows.`);
    if (table.header.length > N_COLUMNS) notes.push(`The table shows the first ${N_COLUMNS} columns.`);
    setText(byId("scored-hint"), notes.join(" "));
  }

  #fillTable() {
    const { scores, surprises, anomalies, table } = this.#result;
    const positions = scores.map((_, position) => position).sort((a, b) => scores[b] - scores[a] || a - b).slice(0, MAX_ROWS);
    setText(byId("top-rows-title"), positions.length === scores.length ? "All rows, highest score first" : `The ${positions.length} rows with the highest scores`);
    byId("top-rows-head").replaceChildren(headRow(["Row", "Score", "Surprise", "Anomaly", ...table.header.slice(0, N_COLUMNS)]));
    this.#rows = new Map(positions.map((position) => [position, this.#row(position, [score(scores[position]), surprise(surprises[position])], anomalies[position], table)]));
    byId("top-rows").replaceChildren(...this.#rows.values());
  }

  #row(position, figures, isAnomaly, table) {
    const cells = table.header.slice(0, N_COLUMNS).map((_, column) => table.rows[position][column] ?? "");
    const texts = [...figures, isAnomaly ? "yes" : "no", ...cells];
    const row = buttonRow(integer(position + 1), `Why row ${integer(position + 1)} has its score`, texts, () => this.#explain(position));
    row.classList.toggle("anomaly", isAnomaly);
    return row;
  }

  #explain(position) {
    const { name, points, indices } = this.#result;
    this.#mark(position);
    return this.#explanation.open({
      title: `Why row ${integer(position + 1)} has its score`,
      load: () => (indices === null ? api.explainPoint(name, points[position]) : api.explainRow(name, indices[position])),
      introduction: (found) => `Score ${score(found.anomaly_score)}, surprise ${surprise(found.surprise)}. Share of the score by feature:`,
      returnTarget: () => this.#rows.get(position)?.querySelector("button"),
    });
  }

  #mark(position) {
    selectRow(this.#rows.values(), this.#rows.get(position));
  }

  #offerDownload() {
    const { scores, surprises, anomalies, table, name } = this.#result;
    const records = table.rows.map((row, position) => {
      const cells = table.header.map((_, column) => row[column] ?? "");
      return [...cells, String(scores[position]), String(surprises[position]), String(anomalies[position])];
    });
    const lines = write([[...table.header, "anomaly_score", "surprise", "is_anomaly"], ...records], table.separator);
    if (this.#address !== null) URL.revokeObjectURL(this.#address);
    this.#address = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    const link = byId("download");
    link.href = this.#address;
    link.download = `${name}-scores.csv`;
  }
}
