// The features and the score of the latest points, in panels above a common axis.

import { anomalyMarker, axis, escaped, note, thresholdStyle, titledAxis } from "./chart.js";
import { isNumber, isThreshold, number, score, shortened } from "./format.js";

const HEADING = 24; // pixels
const PANEL = 66;
const SCORE_PANEL = 110;
const GAP = 12;
const MARGIN = { l: 52, r: 14, t: 0, b: 42 };

export function liveFigure(theme, { key, features, shown, history, selected }) {
  const panels = [
    ...shown.map((name) => featurePanel(name, features.indexOf(name), history)),
    { title: "score", note: " and threshold (dashed)", values: history.anomaly_score, height: SCORE_PANEL, colour: theme.ink, format: score },
  ];
  const height = panels.reduce((sum, panel) => sum + HEADING + panel.height + GAP, -GAP);
  placePanels(panels, height);
  const traces = panels.flatMap((panel, i) => tracesOf(theme, panel, history, axisName("y", i)));
  traces.push(thresholdTrace(theme, history, axisName("y", panels.length - 1)));
  return { traces, layout: layoutOf(theme, panels, height, { key, history, selected }) };
}

function featurePanel(name, column, history) {
  return { title: name, values: history.values.map((row) => row[column]), height: PANEL, format: number };
}

function placePanels(panels, height) {
  let top = 0;
  for (const panel of panels) {
    panel.top = 1 - (top + HEADING) / height;
    panel.bottom = 1 - (top + HEADING + panel.height) / height;
    top += HEADING + panel.height + GAP;
  }
}

function tracesOf(theme, panel, history, yaxis) {
  const anomalies = history.anomalies();
  const pick = (column) => anomalies.map((position) => column[position]);
  const hovertemplate = "%{y:.5~g}<br>point %{x}<extra>%{fullData.name}</extra>";
  const shared = { type: "scatter", xaxis: "x", yaxis, name: escaped(shortened(panel.title)), hovertemplate };
  const line = { color: panel.colour ?? theme.accent, width: 1.25 };
  return [
    { ...shared, mode: "lines", x: history.index, y: panel.values, customdata: history.index, line },
    {
      ...shared,
      mode: "markers",
      meta: "anomalies",
      x: pick(history.index),
      y: pick(panel.values),
      customdata: pick(history.index),
      marker: anomalyMarker(theme),
    },
  ];
}

function thresholdTrace(theme, history, yaxis) {
  return {
    type: "scatter",
    mode: "lines",
    meta: "threshold",
    name: "threshold",
    yaxis,
    x: history.index,
    y: history.threshold.map((value) => (isThreshold(value) ? value : null)),
    hoverinfo: "skip",
    line: thresholdStyle(theme),
  };
}

function layoutOf(theme, panels, height, { key, history, selected }) {
  const layout = {
    height: height + MARGIN.t + MARGIN.b,
    margin: MARGIN,
    uirevision: key,
    annotations: panels.flatMap((panel) => headings(theme, panel)),
    shapes: selected === null ? [] : [mark(theme, selected)],
    xaxis: titledAxis(theme, "point", {
      range: rangeOf(history),
      anchor: axisName("y", panels.length - 1),
      tickformat: ",d",
      nticks: 8,
      showspikes: true,
      spikemode: "across",
      spikesnap: "cursor",
      spikethickness: 1,
      spikedash: "solid",
      spikecolor: theme.quiet,
    }),
  };
  panels.forEach((panel, i) => {
    const domain = [panel.bottom, panel.top];
    layout[axisName("yaxis", i)] = axis(theme, { domain, nticks: 5, fixedrange: true, exponentformat: "SI" });
  });
  return layout;
}

function headings(theme, panel) {
  const shared = { y: panel.top, yanchor: "bottom", yshift: 1 };
  const latest = panel.values.findLast(isNumber);
  const heading = `<b>${escaped(shortened(panel.title))}</b>${panel.note ?? ""}`;
  const found = [note(heading, { ...shared, x: 0, xanchor: "left", font: { size: 12, color: theme.ink } })];
  if (latest !== undefined) {
    found.push(note(panel.format(latest), { ...shared, x: 1, xanchor: "right", font: { size: 12, color: theme.soft } }));
  }
  return found;
}

function mark(theme, index) {
  return { type: "line", xref: "x", yref: "paper", x0: index, x1: index, y0: 0, y1: 1, line: { color: theme.anomaly, width: 1, dash: "dot" } };
}

function rangeOf(history) {
  const pad = Math.max((history.last - history.index[0]) * 0.012, 1);
  return [history.index[0] - pad, history.last + pad];
}

function axisName(letter, position) {
  return position === 0 ? letter : `${letter}${position + 1}`;
}
