// The form that takes a table: pasted, dropped or chosen, then scored.

import { parse, pointsOf } from "./csv.js";
import { byId, setText } from "./dom.js";
import { bytes, count, counted, shortened } from "./format.js";
import { Scored } from "./scored.js";
import { scoreRows } from "./scoring.js";

const MOST_BYTES = 200 * 2 ** 20;

export class TableForm {
  #detector = null;
  #file = null;
  #stopper = null;
  #scored = new Scored();

  constructor() {
    byId("score").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    byId("file").addEventListener("change", () => this.#take(byId("file").files[0] ?? null));
    byId("source-clear").addEventListener("click", () => this.#leaveOut());
    byId("csv").addEventListener("input", () => this.#take(null));
    byId("score-stop").addEventListener("click", () => this.#stopper?.abort());
    byId("learn").addEventListener("change", () => setText(byId("score-button"), byId("learn").checked ? "Score and learn" : "Score"));
    this.#takeDrops(byId("drop"));
  }

  choose(detector) {
    const isOther = this.#detector?.name !== detector.name || this.#detector?.created !== detector.created;
    this.#detector = detector;
    if (!isOther) return;
    this.#stopper?.abort();
    this.#scored.clear();
    this.#complain("");
    const names = shortened(detector.configuration.features.join(", "), 200);
    setText(byId("csv-hint"), `Columns needed: ${names}. Their order does not matter; others are shown, but not sent.`);
  }

  #takeDrops(zone) {
    for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault()); // do not leave the page
    const isFile = (event) => event.dataTransfer.types.includes("Files");
    zone.addEventListener("dragover", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      zone.classList.add("over");
    });
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      zone.classList.remove("over");
      if (!isFile(event)) return;
      event.preventDefault();
      this.#take(event.dataTransfer.files[0] ?? null);
    });
  }

  #take(file) {
    this.#file = file;
    byId("source").hidden = file === null;
    if (file !== byId("file").files[0]) byId("file").value = "";
    if (file !== null) setText(byId("source-name"), `File ${file.name}, ${bytes(file.size)}`);
    this.#complain("");
  }

  #leaveOut() {
    this.#take(null);
    byId("csv").focus();
  }

  async #text() {
    if (this.#file === null) return byId("csv").value;
    if (this.#file.size > MOST_BYTES) throw new Error(`The file is larger than ${bytes(MOST_BYTES)}. Use the command imondrian score.`);
    return this.#file.text();
  }

  async #run() {
    const detector = this.#detector;
    const stopper = (this.#stopper = new AbortController());
    const isLearning = byId("learn").checked;
    let nDone = 0;
    const onProgress = (share, n) => {
      byId("progress").value = share;
      nDone = n;
    };
    this.#setBusy(true);
    this.#complain("");
    this.#scored.clear();
    try {
      const table = parse(await this.#text());
      const points = pointsOf(table, detector.configuration.features);
      const found = await scoreRows(detector.name, points, { isLearning, signal: stopper.signal, onProgress });
      this.#scored.show({ ...found, table, points, name: detector.name, isWarm: detector.is_warm });
    } catch (error) {
      const done = isLearning && nDone > 0 ? ` ${counted(nDone, "row")} had been learned.` : "";
      this.#complain(stopper.signal.aborted ? `Stopped after ${count(nDone)} rows.` : `${error.message}${done}`);
    } finally {
      this.#setBusy(false);
    }
  }

  #setBusy(isBusy) {
    byId("score-button").disabled = isBusy;
    byId("score-stop").hidden = byId("progress").hidden = !isBusy;
  }

  #complain(text) {
    setText(byId("score-error"), text);
  }
}
