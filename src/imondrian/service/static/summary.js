// Summary figures of a detector, the rate of its points, and its drifts.

import { byId, make, setText } from "./dom.js";
import { bytes, duration, integer, isThreshold, number, rate, score, thresholdSurprise, thresholdWords, withUnit } from "./format.js";

const RATE_SPAN = 10_000; // milliseconds over which the rate is computed
const TITLES = ["Points seen", "Keys", "Rate", "Anomalies", "Incidents", "Threshold", "State", "Gaps filled", "Usual step", "Late points", "Holes", "Queued", "Memory"];
const DRIFT_TEXTS = { outside: "more points than usual lie outside the known range", scores: "the distribution of the scores has changed" };

export class SummaryPanel {
  #cells = new Map();
  #samples = [];
  #nDrifts = -1;

  constructor() {
    for (const title of TITLES) {
      this.#cells.set(title, make("dd"));
      byId("summary").append(make("div", {}, make("dt", { textContent: title }), this.#cells.get(title)));
    }
  }

  reset() {
    this.#samples = [];
    this.#nDrifts = -1;
  }

  show(detector) {
    setText(byId("settings"), settingsOf(detector.configuration));
    const texts = {
      "Points seen": integer(detector.n_seen),
      Keys: detector.n_keys === null ? undefined : integer(detector.n_keys),
      Rate: rate(this.#rate(detector.n_seen)),
      Anomalies: integer(detector.n_anomalies),
      Incidents: incidentsText(detector),
      Threshold: isThreshold(detector.threshold) ? score(detector.threshold) : "None yet",
      State: detector.is_warm ? "Ready" : "Warming up",
      "Gaps filled": integer(detector.n_missing),
      Queued: integer(detector.n_waiting),
      Memory: bytes(detector.n_bytes),
      ...timeTexts(detector),
      ...keyedTexts(detector),
    };
    for (const [title, cell] of this.#cells) {
      cell.parentElement.hidden = texts[title] === undefined;
      setText(cell, texts[title] ?? "");
    }
    this.#cells.get("Incidents").classList.toggle("nonzero", detector.n_open_incidents > 0);
    this.#cells.get("Anomalies").classList.toggle("nonzero", detector.n_anomalies > 0);
    if (detector.drifts.length !== this.#nDrifts) showDrifts(detector.drifts);
    this.#nDrifts = detector.drifts.length;
  }

  #rate(nSeen) {
    const now = performance.now();
    this.#samples.push([now, nSeen]);
    while (this.#samples.length > 2 && now - this.#samples[0][0] > RATE_SPAN) this.#samples.shift();
    const [time, nBefore] = this.#samples[0];
    return now > time ? ((nSeen - nBefore) / (now - time)) * 1000 : NaN;
  }
}

function incidentsText({ n_incidents: n, n_open_incidents: nOpen }) {
  return nOpen > 0 ? `${integer(n)}, ${integer(nOpen)} open` : integer(n);
}

// Figures that only time series have, without counts of 0; if the chart shows surprises, the score threshold is left out.
function timeTexts({ times, configuration }) {
  if (times === null) return {};
  const late = times.n_late === 0 ? undefined : integer(times.n_late);
  const holes = times.n_holes === 0 ? undefined : integer(times.n_holes);
  const shown = { "Usual step": duration(times.step), "Late points": late, Holes: holes };
  return thresholdSurprise(configuration.threshold) === null ? shown : { ...shown, Threshold: undefined };
}

// Figures that each key has for itself are left out.
function keyedTexts({ configuration }) {
  return configuration.key === null ? {} : { Threshold: undefined, State: undefined, "Gaps filled": undefined };
}

function showDrifts(drifts) {
  const items = drifts.toReversed().map(({ index, since, what, value, usual }) => {
    const figures = `${number(value)}, usually ${number(usual)}`;
    return make("li", { textContent: `Detected at point ${integer(index)}, began at point ${integer(since)}: ${DRIFT_TEXTS[what] ?? what} (${figures})` });
  });
  byId("drift-list").replaceChildren(...items);
  byId("drifts").hidden = drifts.length === 0;
}

function settingsOf({ features, categorical, window, n_trees: nTrees, threshold, shingle, preset, key }) {
  const kinds = categorical.length === 0 ? "" : `, ${integer(categorical.length)} of them categories`;
  const parts = [`${withUnit(features.length, "feature")}${kinds}`, `window of ${withUnit(window, "point")}`, withUnit(nTrees, "tree")];
  if (key !== null) parts.unshift(`one detector per ${key}`);
  if (preset === "series") parts.unshift("time series");
  if (shingle > 1) parts.push(`${shingle} rows per point`);
  parts.push(`anomalies: ${thresholdWords(threshold)}`);
  return parts.join(" · ");
}
