// The scores of the rows of a table; if there are many, each dot is the highest score of several rows.

import { anomalyMarker, thresholdLine, titledAxis } from "./chart.js";
import { isThreshold } from "./format.js";

const MAX_COUNT = 2000; // dots

export function rowsPerDot(n) {
  return Math.ceil(n / MAX_COUNT);
}

export function scoreFigure(theme, { scores, anomalies, threshold }) {
  const positions = highest(scores, rowsPerDot(scores.length));
  const traces = [
    trace("rows", positions.filter((position) => !anomalies[position]), scores, { color: theme.accent, size: 4, opacity: 0.7 }),
    trace("anomalies", positions.filter((position) => anomalies[position]), scores, anomalyMarker(theme)),
  ];
  return { traces, layout: layoutOf(theme, threshold) };
}

function highest(scores, size) {
  const positions = [];
  for (let first = 0; first < scores.length; first += size) {
    let best = first;
    for (let i = first; i < Math.min(first + size, scores.length); i += 1) if (scores[i] > scores[best]) best = i;
    positions.push(best);
  }
  return positions;
}

function trace(name, positions, scores, marker) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    meta: name,
    x: positions.map((position) => position + 1),
    y: positions.map((position) => scores[position]),
    customdata: positions,
    marker,
    hovertemplate: "row %{x}<br>score %{y:.4f}<extra></extra>",
  };
}

function layoutOf(theme, threshold) {
  const isKnown = isThreshold(threshold);
  const line = thresholdLine(theme, { xref: "paper", x0: 0, x1: 1, y0: threshold, y1: threshold });
  return {
    height: 240,
    margin: { l: 52, r: 14, t: 12, b: 42 },
    shapes: isKnown ? [line] : [],
    xaxis: titledAxis(theme, "row", { tickformat: ",d", showgrid: false }),
    yaxis: titledAxis(theme, "score", { nticks: 5, fixedrange: true }),
  };
}
