// Figures of a detector, how fast points come, and its drifts.

import { byId, make, setText } from "./dom.js";
import { bytes, count, counted, isThreshold, measure, rate, score } from "./format.js";

const SPAN = 10_000; // milliseconds over which the rate is taken
const TITLES = ["Points seen", "Rate", "Anomalies", "Threshold", "State", "Waiting", "Memory"];
const WHAT = { outside: "more points lie outside of what was known", scores: "the scores are spread in another way" };

export class Facts {
  #cells = new Map();
  #polls = [];
  #nDrifts = -1;

  constructor() {
    for (const title of TITLES) {
      this.#cells.set(title, make("dd"));
      byId("facts").append(make("div", {}, make("dt", { textContent: title }), this.#cells.get(title)));
    }
  }

  reset(detector) {
    this.#polls = [];
    this.#nDrifts = -1;
    setText(byId("settings"), settingsOf(detector.configuration));
  }

  show(detector) {
    const texts = {
      "Points seen": count(detector.n_seen),
      Rate: rate(this.#rate(detector.n_seen)),
      Anomalies: count(detector.n_anomalies),
      Threshold: isThreshold(detector.threshold) ? score(detector.threshold) : "None yet",
      State: detector.is_warm ? "Ready" : "Warming up",
      Waiting: count(detector.n_waiting),
      Memory: bytes(detector.n_bytes),
    };
    for (const [title, cell] of this.#cells) setText(cell, texts[title]);
    this.#cells.get("Anomalies").classList.toggle("some", detector.n_anomalies > 0);
    if (detector.drifts.length !== this.#nDrifts) showDrifts(detector.drifts);
    this.#nDrifts = detector.drifts.length;
  }

  #rate(nSeen) {
    const now = performance.now();
    this.#polls.push([now, nSeen]);
    while (this.#polls.length > 2 && now - this.#polls[0][0] > SPAN) this.#polls.shift();
    const [time, before] = this.#polls[0];
    return now > time ? ((nSeen - before) / (now - time)) * 1000 : NaN;
  }
}

function showDrifts(drifts) {
  const items = drifts.toReversed().map(({ index, since, what, value, usual }) => {
    const figures = `${measure(value)}, usually ${measure(usual)}`;
    return make("li", { textContent: `At point ${count(index)}, since point ${count(since)}: ${WHAT[what] ?? what} (${figures})` });
  });
  byId("drift-list").replaceChildren(...items);
  byId("drifts").hidden = drifts.length === 0;
}

function settingsOf({ features, window, n_trees: nTrees, threshold, shingle }) {
  const parts = [counted(features.length, "feature"), `window of ${counted(window, "point")}`, counted(nTrees, "tree")];
  if (shingle > 1) parts.push(`${shingle} rows a point`);
  parts.push(typeof threshold === "number" ? `threshold for ${measure(threshold * 100)} % of the points` : `threshold: ${threshold}`);
  return parts.join(" · ");
}
