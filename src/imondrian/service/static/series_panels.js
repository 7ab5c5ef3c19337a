// What the chart shows of time series: expected ranges behind the values, and rows at their own times.

import { escaped } from "./chart.js";
import { isNumber, number } from "./format.js";

const ZONE = /(Z|[+-]\d{2}:?\d{2})$/;
const HEIGHTS = [{ upTo: 1, height: 220 }, { upTo: 3, height: 130 }, { upTo: 6, height: 90 }]; // pixels of a panel, by number of panels
const MIN_HEIGHT = 66;

export function seriesPanel(title, column, history, nPanels) {
  const low = history.expected_low.map((row) => row[column]);
  const high = history.expected_high.map((row) => row[column]);
  const values = history.values.map((row) => row[column]);
  const height = HEIGHTS.find(({ upTo }) => nPanels <= upTo)?.height ?? MIN_HEIGHT;
  const note = low.some(isNumber) ? " and expected range" : "";
  return { title, note, values, low, high, height, format: number };
}

// The expected range is not known until the first rows have been learned.
export function bandTraces(theme, { title, low, high }, x, yaxis) {
  const known = low.flatMap((value, position) => (isNumber(value) && isNumber(high[position]) ? [position] : []));
  const pick = (column) => known.map((position) => column[position]);
  const shared = { type: "scatter", mode: "lines", xaxis: "x", yaxis, x: pick(x), hoverinfo: "skip", name: escaped(title), meta: "expected", line: { width: 0 } };
  return [{ ...shared, y: pick(low) }, { ...shared, y: pick(high), fill: "tonexty", fillcolor: theme.band }];
}

export function expectedText({ low, high }, position) {
  return isNumber(low?.[position]) ? `<br>expected ${number(low[position])} to ${number(high[position])}` : "";
}

// The times of all rows in milliseconds, with the hours as they were written; null unless all rows have times in order.
export function orderedTimes(history) {
  const times = history.own_time.map((text) => (text === null ? NaN : Date.parse(`${text.trim().replace(ZONE, "").replace(" ", "T")}${text.includes(":") ? "Z" : ""}`)));
  return times.every((time, i) => isNumber(time) && (i === 0 || time >= times[i - 1])) ? times : null;
}
