// The form that scores a table, which is pasted, dropped or selected as a file.

import { parse, pointsOf, timesOf } from "./csv.js";
import { byId, setText } from "./dom.js";
import { acceptDrops } from "./drop_zone.js";
import { bytes, integer, shortened, withUnit } from "./format.js";
import { ScoreResults } from "./score_results.js";
import { scoreRows } from "./score_rows.js";

const MAX_BYTES = 200 * 2 ** 20;

export class TableForm {
  #detector = null;
  #file = null;
  #controller = null;
  #scored = new ScoreResults();

  constructor() {
    byId("score").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    byId("file").addEventListener("change", () => this.#setFile(byId("file").files[0] ?? null));
    byId("source-clear").addEventListener("click", () => this.#removeFile());
    byId("csv").addEventListener("input", () => this.#setFile(null));
    byId("score-stop").addEventListener("click", () => this.#controller?.abort());
    byId("learn").addEventListener("change", () => setText(byId("score-button"), byId("learn").checked ? "Score and learn" : "Score"));
    acceptDrops(byId("drop"), (file) => this.#setFile(file));
  }

  choose(detector) {
    const isOther = this.#detector?.name !== detector.name || this.#detector?.created !== detector.created;
    this.#detector = detector;
    if (!isOther) return;
    this.#controller?.abort();
    this.#scored.clear();
    this.#showError("");
    const names = shortened(detector.configuration.features.join(", "), 200);
    setText(byId("csv-hint"), `Required columns, in any order: ${names}. Other columns are shown, but not sent. ${timeHint(detector.configuration)}`);
  }

  #setFile(file) {
    this.#file = file;
    byId("source").hidden = file === null;
    if (file !== byId("file").files[0]) byId("file").value = "";
    if (file !== null) setText(byId("source-name"), `File ${file.name}, ${bytes(file.size)}`);
    this.#showError("");
  }

  #removeFile() {
    this.#setFile(null);
    byId("csv").focus();
  }

  async #text() {
    if (this.#file === null) return byId("csv").value;
    if (this.#file.size > MAX_BYTES) throw new Error(`The file is larger than ${bytes(MAX_BYTES)}. Use the command “imondrian score” instead.`);
    return this.#file.text();
  }

  async #run() {
    const detector = this.#detector;
    const controller = (this.#controller = new AbortController());
    const isLearning = byId("learn").checked;
    let nScored = 0;
    const onProgress = (share, n) => {
      byId("progress").value = share;
      nScored = n;
    };
    this.#setBusy(true);
    this.#showError("");
    this.#scored.clear();
    try {
      const table = parse(await this.#text());
      const points = pointsOf(table, detector.configuration);
      const rows = isLearning || isSeries(detector) ? withTimes(points, timesOf(table, detector.configuration), detector) : points;
      const found = await scoreRows(detector.name, rows, { isLearning, signal: controller.signal, onProgress });
      this.#scored.show({ ...found, table, points: rows, name: detector.name, isWarm: detector.is_warm });
    } catch (error) {
      const done = isLearning && nScored > 0 ? ` ${withUnit(nScored, "row")} ${nScored === 1 ? "was" : "were"} learned.` : "";
      this.#showError(controller.signal.aborted ? `Stopped after ${integer(nScored)} rows.` : `${error.message}${done}`);
    } finally {
      this.#setBusy(false);
    }
  }

  #setBusy(isBusy) {
    byId("score-button").disabled = isBusy;
    byId("score-stop").hidden = byId("progress").hidden = !isBusy;
  }

  #showError(text) {
    setText(byId("score-error"), text);
  }
}

function isSeries({ configuration }) {
  return configuration.preset === "series";
}

function timeHint({ time, preset }) {
  const column = `A column “${shortened(time)}”`;
  return preset === "series" ? `${column} has the times of the rows.` : `${column} is stored with rows that are learned.`;
}

function withTimes(points, times, { configuration: { features, time } }) {
  if (times === null) return points;
  return points.map((point, i) => ({ ...Object.fromEntries(features.map((name, j) => [name, point[j]])), [time]: times[i] }));
}
