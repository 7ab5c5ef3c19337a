// The categories of a feature as lanes, in alphabetical order: the most frequent ones, and below them all others together.

import { category } from "./format.js";

const MAX_LANES = 6;
const OTHERS = "other";

export function lanesOf(values) {
  const counts = new Map(); // by category; null if it is missing
  for (const value of values.map(keyOf)) counts.set(value, (counts.get(value) ?? 0) + 1);
  const byCount = [...counts].sort((a, b) => b[1] - a[1] || compare(a[0], b[0]));
  const nOwn = byCount.length > MAX_LANES ? MAX_LANES - 1 : byCount.length;
  const own = byCount.slice(0, nOwn).sort((a, b) => compare(a[0], b[0]));
  const lanes = own.map(([key, count]) => ({ label: category(key), count }));
  const rest = byCount.slice(nOwn);
  if (rest.length > 0) lanes.push({ label: OTHERS, count: rest.reduce((sum, [, count]) => sum + count, 0) });
  const positions = new Map(own.map(([key], lane) => [key, lane]));
  return { lanes, nCategories: byCount.length, laneOf: (value) => positions.get(keyOf(value)) ?? nOwn };
}

function keyOf(value) {
  return value === null ? null : String(value);
}

function compare(one, other) {
  if (one === null || other === null) return (one === null) - (other === null); // missing values come last
  return one < other ? -1 : Number(one > other);
}
