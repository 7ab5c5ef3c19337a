// Histogram of the scores of the latest points, with the threshold.

import { anomalyMarker, note, thresholdLine, titledAxis } from "./chart.js";
import { isNumber, isThreshold, score } from "./format.js";

const N_BINS = 50;

export function histogramFigure(theme, { history, threshold }) {
  const scores = history.anomaly_score.filter(isNumber);
  const anomalies = history.anomalies().map((position) => history.anomaly_score[position]);
  return { traces: [bars(theme, scores), dots(theme, anomalies)], layout: layoutOf(theme, threshold) };
}

function binsOf(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const size = Math.max((high - low) / N_BINS, 0.002);
  return { start: low, end: high + size, size };
}

function bars(theme, x) {
  const hovertemplate = "%{y} points<br>score %{x}<extra></extra>";
  return { type: "histogram", x, xbins: binsOf(x), autobinx: false, marker: { color: theme.accent }, hovertemplate };
}

function dots(theme, x) {
  const hovertemplate = "anomaly<br>score %{x:.4f}<extra></extra>";
  const y = x.map(() => 0);
  return { type: "scatter", mode: "markers", meta: "anomalies", x, y, marker: anomalyMarker(theme), cliponaxis: false, hovertemplate };
}

function layoutOf(theme, threshold) {
  const isKnown = isThreshold(threshold);
  const font = { size: 11, color: theme.soft };
  const line = thresholdLine(theme, { xref: "x", yref: "paper", x0: threshold, x1: threshold, y0: 0, y1: 1 });
  const label = note(`threshold ${score(threshold)}`, { xref: "x", x: threshold, y: 1, xanchor: "right", yanchor: "bottom", font });
  return {
    height: 220,
    margin: { l: 52, r: 14, t: 22, b: 42 },
    bargap: 0.08,
    dragmode: false,
    shapes: isKnown ? [line] : [],
    annotations: isKnown ? [label] : [],
    xaxis: titledAxis(theme, "score", { showgrid: false, fixedrange: true }),
    yaxis: titledAxis(theme, "points", { nticks: 5, fixedrange: true, rangemode: "tozero" }),
  };
}
