// The selected detector: summary, charts, anomalies and explanations.

import { AnomalyTable } from "./anomaly_table.js";
import * as api from "./api.js";
import { canZoom, Chart } from "./chart.js";
import { byId, setText } from "./dom.js";
import { pointsExample } from "./examples.js";
import { ExplanationPanel } from "./explanation.js";
import { integer, rowTime, score, surprise, withUnit } from "./format.js";
import { histogramFigure } from "./histogram.js";
import { History } from "./history.js";
import { incidentIntroduction, sourceOf } from "./incident_list.js";
import { KeyList, keyText } from "./key_list.js";
import { liveFigure } from "./live_chart.js";
import { Picker } from "./picker.js";
import { SummaryPanel } from "./summary.js";

const HINT = "Select an anomaly in the chart or in the table to see which features make it anomalous.";
const ZOOMING = canZoom() ? "; drag to zoom, double-click to zoom out" : "";
const MAX_KEY = 60; // characters of a key
const NO_POINTS = "No points yet. Send some, for example from a shell:";
const NO_NEW_POINTS = "No recent rows to show; everything learned before is still there. Send more points, for example from a shell:";

export class DetectorView {
  #detector = null;
  #history = new History();
  #selected = null;
  #key = null; // the key whose points are shown, if the detector has keys
  #seen = -1; // points of the detector when the history was requested
  #keys = new KeyList((key) => this.#chooseKey(key));
  #summary = new SummaryPanel();
  #picker = new Picker(() => this.#showHistory(true));
  #anomalies = new AnomalyTable((index) => this.#explain(index));
  #explanation = new ExplanationPanel("explanation", HINT, () => this.#select(null));
  #chart = new Chart(byId("chart"), (theme, width) => this.#liveFigure(theme, width), (index) => this.#explainIfAnomaly(index));
  #histogram = new Chart(byId("histogram"), (theme) => this.#histogramFigure(theme));

  get detector() {
    return this.#detector;
  }

  show(detector) {
    if (isOther(this.#detector, detector)) this.#reset(detector);
    this.#detector = detector;
    this.#summary.show(detector);
    this.#showEmpty();
  }

  async update() {
    const nSeen = this.#detector.n_seen;
    await this.#keys.update(nSeen);
    if (this.#isKeyed && this.#key === null && this.#keys.first !== null) this.#chooseKey(this.#keys.first);
    const history = this.#history;
    if (this.#isKeyed ? this.#key === null || nSeen === this.#seen : nSeen - 1 <= history.last) return;
    const { last } = history;
    const rows = await api.history(this.#detector.name, last, this.#key);
    if (history !== this.#history || last !== history.last) return; // another detector or key was selected in the meantime, or the rows were added
    this.#seen = nSeen;
    if (rows.index.length === 0) return;
    history.add(rows);
    this.#showEmpty();
    this.#showHistory(false);
  }

  forget() {
    this.#detector = null;
    this.#history = new History();
  }

  #reset(detector) {
    this.#detector = detector;
    this.#history = new History();
    this.#selected = null;
    this.#key = null;
    this.#seen = -1;
    this.#explanation.clear();
    this.#summary.reset();
    this.#keys.reset(detector);
    byId("table-section").hidden = this.#isKeyed;
    this.#picker.reset(detector.configuration.features);
    this.#showHistory(true);
    setText(byId("name"), detector.name);
  }

  get #isKeyed() {
    return this.#detector.configuration.key !== null;
  }

  #chooseKey(key) {
    this.#key = key;
    this.#keys.mark(key);
    this.#history = new History();
    this.#seen = -1;
    this.#selected = null;
    this.#explanation.clear();
    this.#showHistory(true);
    this.#update();
  }

  // Failures are shown by the next poll.
  #update() {
    this.update().catch(() => {});
  }

  #showHistory(isNew) {
    if (isNew) this.#anomalies.reset(this.#picker.shown);
    this.#anomalies.show(this.#history, this.#columns());
    this.#anomalies.mark(this.#selected);
    const latest = `latest ${withUnit(this.#history.length, "point")}`;
    setText(byId("live-title"), this.#key === null ? "Live" : keyText(this.#key, MAX_KEY));
    setText(byId("live-hint"), this.#history.length === 0 ? "" : `The ${latest}${ZOOMING}`);
    setText(byId("histogram-hint"), `Of the ${latest}`);
    this.#chart.draw();
    this.#histogram.draw();
  }

  #showEmpty() {
    const isEmpty = this.#history.length === 0;
    byId("no-points").hidden = !isEmpty;
    for (const id of ["chart", "scores"]) byId(id).hidden = isEmpty;
    if (!isEmpty) return;
    setText(byId("no-points-text"), this.#detector.n_seen === 0 ? NO_POINTS : NO_NEW_POINTS);
    setText(byId("no-points-example"), pointsExample(this.#detector));
  }

  #columns() {
    const { features, categorical } = this.#detector.configuration;
    return this.#picker.shown.map((name) => ({ name, column: features.indexOf(name), isCategory: categorical.includes(name) }));
  }

  #liveFigure(theme, width) {
    if (this.#history.length === 0) return null;
    const { name, created, configuration } = this.#detector;
    return liveFigure(theme, width, {
      seriesThreshold: configuration.preset === "series" ? configuration.threshold : null,
      key: `${name} ${created} ${this.#key}`,
      columns: this.#columns(),
      history: this.#history,
      selected: this.#selected,
    });
  }

  #histogramFigure(theme) {
    if (this.#history.length === 0) return null;
    const threshold = this.#isKeyed ? this.#history.threshold.at(-1) : this.#detector.threshold;
    return histogramFigure(theme, { history: this.#history, threshold });
  }

  openIncident(incident, returnTarget) {
    if (incident.key !== null && incident.key !== this.#key) this.#chooseKey(incident.key);
    this.#select(incident.peak?.index ?? null);
    const title = incident.kind === "silence" ? `No data from ${incident.detector}` : `Incident ${integer(incident.incident)} of ${sourceOf(incident)}`;
    return this.#explanation.open({ title, load: () => incident, introduction: incidentIntroduction, returnTarget });
  }

  #explainIfAnomaly(index) {
    if (this.#history.is_anomaly[this.#history.index.indexOf(index)]) this.#explain(index);
  }

  #explain(index) {
    const { name } = this.#detector;
    const key = this.#key;
    this.#select(index);
    return this.#explanation.open({
      title: `Why point ${integer(index)} is anomalous`,
      load: () => api.explainRow(name, index, key),
      introduction: (found) => `Score ${score(found.anomaly_score)}, surprise ${surprise(found.surprise)}, threshold ${score(found.threshold)}, ${rowTime(found.own_time, found.time)}. Share of the score by feature:`,
      returnTarget: () => this.#anomalies.button(index),
    });
  }

  #select(index) {
    this.#selected = index;
    this.#anomalies.mark(index);
    this.#chart.draw();
  }
}

function isOther(previous, current) {
  return previous === null || previous.name !== current.name || previous.created !== current.created || current.n_seen < previous.n_seen;
}
