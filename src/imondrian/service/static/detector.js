// The chosen detector: its figures, charts, anomalies and why they are odd.

import { Anomalies } from "./anomalies.js";
import * as api from "./api.js";
import { canZoom, Chart } from "./charts.js";
import { byId, setText } from "./dom.js";
import { pointsExample } from "./examples.js";
import { Facts } from "./facts.js";
import { count, counted, score, time } from "./format.js";
import { histogramFigure } from "./histogram.js";
import { History } from "./history.js";
import { liveFigure } from "./live_chart.js";
import { Picker } from "./picker.js";
import { Why } from "./why.js";

const HINT = "Choose an anomaly in the chart or in the table to see which features make it odd.";
const ZOOMING = canZoom() ? "; drag to zoom, double-click to zoom out" : "";
const NO_POINTS = "No points yet. Send some, for example from a shell:";
const NO_NEW_POINTS = "No rows to show yet; what was learned before is kept. Send more, for example from a shell:";

export class DetectorView {
  #detector = null;
  #history = new History();
  #selected = null;
  #facts = new Facts();
  #picker = new Picker(() => this.#showHistory(true));
  #anomalies = new Anomalies((index) => this.#explain(index));
  #why = new Why("why", HINT, () => this.#select(null));
  #chart = new Chart(byId("chart"), (theme) => this.#liveFigure(theme), (index) => this.#explainIfOdd(index));
  #spread = new Chart(byId("spread"), (theme) => this.#spreadFigure(theme));

  get detector() {
    return this.#detector;
  }

  show(detector) {
    if (isAnother(this.#detector, detector)) this.#reset(detector);
    this.#detector = detector;
    this.#facts.show(detector);
    this.#showEmpty();
  }

  async update() {
    const history = this.#history;
    if (this.#detector.n_seen - 1 <= history.last) return;
    const rows = await api.history(this.#detector.name, history.last);
    if (history !== this.#history || rows.index.length === 0) return; // another one was chosen meanwhile, or nothing came
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
    this.#why.clear();
    this.#facts.reset(detector);
    this.#picker.reset(detector.configuration.features);
    this.#showHistory(true);
    setText(byId("name"), detector.name);
  }

  #showHistory(isNew) {
    if (isNew) this.#anomalies.reset(this.#picker.shown);
    this.#anomalies.show(this.#history, this.#columns());
    this.#anomalies.mark(this.#selected);
    const latest = `latest ${counted(this.#history.length, "point")}`;
    setText(byId("live-hint"), this.#history.length === 0 ? "" : `The ${latest}${ZOOMING}`);
    setText(byId("spread-hint"), `Of the ${latest}`);
    this.#chart.draw();
    this.#spread.draw();
  }

  #showEmpty() {
    const isEmpty = this.#history.length === 0;
    byId("no-points").hidden = !isEmpty;
    for (const id of ["chart", "oddities", "scores"]) byId(id).hidden = isEmpty;
    if (!isEmpty) return;
    setText(byId("no-points-text"), this.#detector.n_seen === 0 ? NO_POINTS : NO_NEW_POINTS);
    setText(byId("no-points-example"), pointsExample(this.#detector));
  }

  #columns() {
    return this.#picker.shown.map((name) => this.#detector.configuration.features.indexOf(name));
  }

  #liveFigure(theme) {
    if (this.#history.length === 0) return null;
    const { name, created, configuration } = this.#detector;
    return liveFigure(theme, {
      key: `${name} ${created}`,
      features: configuration.features,
      shown: this.#picker.shown,
      history: this.#history,
      selected: this.#selected,
    });
  }

  #spreadFigure(theme) {
    if (this.#history.length === 0) return null;
    return histogramFigure(theme, { history: this.#history, threshold: this.#detector.threshold });
  }

  #explainIfOdd(index) {
    if (this.#history.is_anomaly[this.#history.index.indexOf(index)]) this.#explain(index);
  }

  #explain(index) {
    const { name } = this.#detector;
    this.#select(index);
    return this.#why.open({
      title: `Why point ${count(index)} is odd`,
      load: () => api.explanationAt(name, index),
      lead: (found) => `Score ${score(found.anomaly_score)}, threshold ${score(found.threshold)}, ${time(found.time)}. Share by feature:`,
      back: () => this.#anomalies.button(index),
    });
  }

  #select(index) {
    this.#selected = index;
    this.#anomalies.mark(index);
    this.#chart.draw();
  }
}

function isAnother(before, now) {
  return before === null || before.name !== now.name || before.created !== now.created || now.n_seen < before.n_seen;
}
