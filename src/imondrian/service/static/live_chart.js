// The features and the score of the latest points, in panels above a common axis: lines for numbers, marks on lanes for categories.

import { anomalyMarker, axis, escaped, note, thresholdStyle, titledAxis } from "./chart.js";
import { category, integer, isNumber, isThreshold, number, score, shortened, surprise, thresholdSurprise, withUnit } from "./format.js";
import { lanesOf } from "./lanes.js";
import { bandTraces, expectedText, orderedTimes, seriesPanel } from "./series_panels.js";

const HEADING = 24; // pixels
const PANEL = 66;
const SCORE_PANEL = 110;
const LANE = 18;
const MARK = 0.34; // half the height of a mark, in lanes
const GAP = 12;
const MARGIN = { l: 52, r: 14, t: 0, b: 42 };
const PIXELS_PER_DATE = 80;
const LABELS = { wide: { room: 92, length: 12, heading: 40 }, narrow: { room: 72, length: 9, heading: 24 } }; // room for the labels of lanes, in pixels; longest label and longest heading, in characters
const COUNTS_ROOM = 46; // pixels
const NARROW = 500; // pixels
const PIXELS_PER_TICK = 70;

export function liveFigure(theme, width, { key, columns, history, selected, seriesThreshold = null }) {
  const isSeries = seriesThreshold !== null;
  const level = isSeries ? thresholdSurprise(seriesThreshold) : null;
  const values = isSeries ? columns.map(({ name, column }) => seriesPanel(name, column, history, columns.length)) : columns.map((column) => valuePanel(column, history));
  const panels = [...values, level === null ? scorePanel(theme, history) : surprisePanel(theme, history, level)];
  const height = panels.reduce((sum, panel) => sum + HEADING + panel.height + GAP, -GAP);
  placePanels(panels, height);
  const rows = { history, ...positionsOf(history, isSeries) };
  const traces = panels.flatMap((panel, i) => tracesOf(theme, panel, rows, axisName("y", i)));
  traces.push(thresholdTrace(theme, panels.at(-1), rows, axisName("y", panels.length - 1)));
  return { traces, layout: layoutOf(theme, width, panels, height, { key, rows, selected }) };
}

// Where the rows are on the horizontal axis: time series with times in order are drawn over time, all others by number.
function positionsOf(history, isSeries) {
  const times = isSeries ? orderedTimes(history) : null;
  return { x: times ?? history.index, isOverTime: times !== null };
}

function valuePanel({ name, column, isCategory }, history) {
  return (isCategory ? categoryPanel : numberPanel)(name, history.values.map((row) => row[column]));
}

function scorePanel(theme, history) {
  const values = history.anomaly_score;
  const thresholds = history.threshold.map((value) => (isThreshold(value) ? value : null));
  return { title: "score", note: " and threshold (dashed)", values, thresholds, surprises: history.surprise, height: SCORE_PANEL, colour: theme.ink, format: score };
}

function surprisePanel(theme, history, level) {
  const thresholds = history.index.map(() => level);
  const top = 1.1 * Math.max(2 * level, ...history.anomalies().map((position) => history.surprise[position] ?? 0)); // not of all points: surprises during the warm-up may be much higher
  return { title: "surprise", note: " and threshold (dashed)", values: history.surprise, thresholds, range: [-top / 20, top], height: SCORE_PANEL, colour: theme.ink, format: (value) => value.toFixed(1) };
}

function numberPanel(title, values) {
  return { title, values, height: PANEL, format: number };
}

function categoryPanel(title, categories) {
  const { lanes, nCategories, laneOf } = lanesOf(categories);
  const note = ` ${withUnit(nCategories, "category", "categories")}`;
  return { title, note, values: categories.map(laneOf), categories, lanes, height: Math.max(lanes.length, 2) * LANE };
}

function placePanels(panels, height) {
  let top = 0;
  for (const panel of panels) {
    panel.top = 1 - (top + HEADING) / height;
    panel.bottom = 1 - (top + HEADING + panel.height) / height;
    top += HEADING + panel.height + GAP;
  }
}

function tracesOf(theme, panel, { history, x }, yaxis) {
  const anomalies = history.anomalies();
  const pick = (column) => anomalies.map((position) => column[position]);
  const text = hoverTexts(panel, history);
  const hovertemplate = `${panel.lanes ? "" : "%{y:.5~g}"}%{text}<br>point %{customdata}<extra>%{fullData.name}</extra>`;
  const shared = { type: "scatter", xaxis: "x", yaxis, name: escaped(shortened(panel.title)), hovertemplate };
  const line = { color: panel.colour ?? theme.accent, width: 1.25 };
  const drawn = panel.lanes ? marksOf(panel, history, text) : { x, y: panel.values, customdata: history.index, text };
  return [
    ...(panel.low === undefined ? [] : bandTraces(theme, panel, x, yaxis)),
    { ...shared, mode: "lines", ...drawn, line },
    {
      ...shared,
      mode: "markers",
      meta: "anomalies",
      x: pick(x),
      y: pick(panel.values),
      customdata: pick(history.index),
      text: pick(text),
      marker: anomalyMarker(theme),
    },
  ];
}

function hoverTexts(panel, history) {
  const { categories, surprises } = panel;
  return history.own_time.map((time, position) => {
    const added = surprises === undefined ? expectedText(panel, position) : `<br>surprise ${surprise(surprises[position])}`;
    const value = categories === undefined ? added : escaped(shortened(category(categories[position])));
    return time === null ? value : `${value}<br>${escaped(time)}`;
  });
}

// One path for all marks: thousands of separate markers would be slow.
function marksOf(panel, history, text) {
  const ends = panel.values.map((lane) => [lane - MARK, lane + MARK, null]);
  const both = (column) => column.flatMap((value) => [value, value, null]);
  return { x: both(history.index), y: ends.flat(), customdata: both(history.index), text: both(text) };
}

function thresholdTrace(theme, { thresholds }, { x }, yaxis) {
  return {
    type: "scatter",
    mode: "lines",
    meta: "threshold",
    name: "threshold",
    yaxis,
    x,
    y: thresholds,
    hoverinfo: "skip",
    line: thresholdStyle(theme),
  };
}

function layoutOf(theme, width, panels, height, { key, rows, selected }) {
  const { history, x, isOverTime } = rows;
  const { room, length, heading } = width < NARROW ? LABELS.narrow : LABELS.wide;
  const margin = panels.some((panel) => panel.lanes) ? { ...MARGIN, l: room, r: COUNTS_ROOM } : MARGIN;
  const layout = {
    height: height + margin.t + margin.b,
    margin,
    uirevision: key,
    annotations: panels.flatMap((panel, i) => [...headings(theme, panel, heading, MARGIN.l - margin.l), ...laneCounts(theme, panel, axisName("y", i))]),
    shapes: [...history.incidents().map((span) => shade(theme, span, rows)), ...markOf(theme, selected, rows)],
    xaxis: titledAxis(theme, isOverTime ? "" : "point", {
      range: rangeOf(x),
      anchor: axisName("y", panels.length - 1),
      ...(isOverTime ? { type: "date" } : { type: "linear", tickformat: ",d" }),
      nticks: Math.min(Math.floor((width - margin.l - margin.r) / (isOverTime ? PIXELS_PER_DATE : PIXELS_PER_TICK)), 8),
      tickangle: 0,
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
    const ticks = panel.lanes ? laneTicks(panel.lanes, length) : { nticks: 5, exponentformat: "SI", range: panel.range, autorange: panel.range === undefined };
    layout[axisName("yaxis", i)] = axis(theme, { domain, fixedrange: true, ...ticks });
  });
  return layout;
}

function laneTicks(lanes, length) {
  const ticktext = lanes.map(({ label }) => escaped(shortened(label, length)));
  return { tickvals: lanes.map((_, lane) => lane), ticktext, range: [Math.max(lanes.length, 2) - 0.5, -0.5] };
}

function laneCounts(theme, { lanes = [] }, yref) {
  const shared = { x: 1, xanchor: "left", xshift: 4, yref, font: { size: 11, color: theme.soft } };
  return lanes.map(({ count }, lane) => note(integer(count), { ...shared, y: lane }));
}

function headings(theme, panel, length, xshift) {
  const shared = { y: panel.top, yanchor: "bottom", yshift: 1 };
  const latest = latestText(panel);
  const title = shortened(panel.title, length);
  const remark = panel.note ?? "";
  const heading = `<b>${escaped(title)}</b>${title.length + remark.length > 1.35 * length ? "" : remark}`;
  const found = [note(heading, { ...shared, x: 0, xshift, xanchor: "left", font: { size: 12, color: theme.ink } })];
  if (latest !== undefined) {
    found.push(note(latest, { ...shared, x: 1, xanchor: "right", font: { size: 12, color: theme.soft } }));
  }
  return found;
}

function latestText({ categories, values, format }) {
  if (categories !== undefined) return escaped(shortened(category(categories.at(-1)), 24));
  const latest = values.findLast(isNumber);
  return latest === undefined ? undefined : format(latest);
}

function shade(theme, { number: incident, first, last }, { history, x }) {
  const [x0, x1] = [first, last].map((index) => x[history.index.indexOf(index)]);
  const half = halfStep(x);
  return { type: "rect", layer: "below", xref: "x", yref: "paper", x0: x0 - half, x1: x1 + half, y0: 0, y1: 1, fillcolor: theme.shade, line: { width: 0 }, name: `incident ${incident}` };
}

function markOf(theme, index, { history, x }) {
  const position = history.index.indexOf(index);
  if (position === -1) return [];
  return [{ type: "line", xref: "x", yref: "paper", x0: x[position], x1: x[position], y0: 0, y1: 1, line: { color: theme.anomaly, width: 1, dash: "dot" } }];
}

function rangeOf(x) {
  const pad = Math.max((x.at(-1) - x[0]) * 0.012, 2 * halfStep(x));
  return [x[0] - pad, x.at(-1) + pad];
}

function halfStep(x) {
  return x.length > 1 ? (x.at(-1) - x[0]) / (x.length - 1) / 2 : 0.5;
}

function axisName(letter, position) {
  return position === 0 ? letter : `${letter}${position + 1}`;
}
