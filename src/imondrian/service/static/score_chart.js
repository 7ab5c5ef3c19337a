// The scores of the rows of a table; of many rows, the highest of every few.

import { limitLine, oddMarker, titled } from "./charts.js";
import { isThreshold } from "./format.js";

const N_MOST = 2000; // dots

export function rowsInADot(n) {
  return Math.ceil(n / N_MOST);
}

export function scoreFigure(theme, { scores, anomalies, threshold }) {
  const places = highest(scores, rowsInADot(scores.length));
  const traces = [
    trace("rows", places.filter((place) => !anomalies[place]), scores, { color: theme.accent, size: 4, opacity: 0.7 }),
    trace("anomalies", places.filter((place) => anomalies[place]), scores, oddMarker(theme)),
  ];
  return { traces, layout: layoutOf(theme, threshold) };
}

function highest(scores, size) {
  const places = [];
  for (let first = 0; first < scores.length; first += size) {
    let best = first;
    for (let i = first; i < Math.min(first + size, scores.length); i += 1) if (scores[i] > scores[best]) best = i;
    places.push(best);
  }
  return places;
}

function trace(name, places, scores, marker) {
  return {
    type: "scatter",
    mode: "markers",
    name,
    meta: name,
    x: places.map((place) => place + 1),
    y: places.map((place) => scores[place]),
    customdata: places,
    marker,
    hovertemplate: "row %{x}<br>score %{y:.4f}<extra></extra>",
  };
}

function layoutOf(theme, threshold) {
  const isKnown = isThreshold(threshold);
  const line = limitLine(theme, { xref: "paper", x0: 0, x1: 1, y0: threshold, y1: threshold });
  return {
    height: 240,
    margin: { l: 52, r: 14, t: 12, b: 42 },
    shapes: isKnown ? [line] : [],
    xaxis: titled(theme, "row", { tickformat: ",d", showgrid: false }),
    yaxis: titled(theme, "score", { nticks: 5, fixedrange: true }),
  };
}
