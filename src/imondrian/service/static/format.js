// Numbers, sizes and times as text.

const INTEGER = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const DIGITS = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const TWO_DIGITS = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });
const DURATIONS = [[86_400, "d"], [3_600, "h"], [60, "min"]]; // seconds
const UNITS = ["B", "KB", "MB", "GB"];

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function numberOrText(text) {
  const trimmed = text.trim();
  return /^(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed) && isNumber(Number(trimmed)) ? Number(trimmed) : trimmed; // the service refuses invalid text
}

export function isThreshold(value) {
  return isNumber(value) && value < 1; // the service returns 1 while there is no threshold yet
}

export function integer(value) {
  return INTEGER.format(value);
}

export function withUnit(value, one, many = `${one}s`) {
  return `${integer(value)} ${value === 1 ? one : many}`;
}

export function number(value) {
  if (!isNumber(value)) return "unknown";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(3);
  return (size >= 1000 ? TENTHS : DIGITS).format(value);
}

export function visible(text) {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "\uFFFD"); // control characters could hide or reorder text
}

export function category(value) {
  return value === null ? "missing" : visible(String(value));
}

export function valueText(value, isCategory) {
  return isCategory || value === null ? shortened(category(value)) : number(value);
}

export function score(value) {
  return isNumber(value) ? value.toFixed(4) : "–";
}

// The share of the ordinary points that score as high.
export function oneIn(surprise) {
  if (!isNumber(surprise)) return "unknown";
  return surprise < 0.05 ? "ordinary" : oneInCount(surprise);
}

function oneInCount(surprise) {
  const n = 10 ** surprise;
  return n < 1e9 ? `1 in ${TWO_DIGITS.format(n)}` : "1 in over a billion";
}

export function surprise(value) {
  return isNumber(value) ? `${value.toFixed(1)} (${oneIn(value)})` : "unknown";
}

export function thresholdWords(threshold) {
  const [kind, value] = partsOf(threshold);
  if (kind === "kmeans") return "the upper of two groups of scores (k-means)";
  if (kind === "top") return `the top ${value.replace("%", " %")} of the points`;
  if (kind === "score" || Number(threshold) === 0.5) return `scores above ${kind === "score" ? value : "0.5"}`;
  const level = thresholdSurprise(threshold);
  return level === null ? visible(String(threshold)) : `${oneInCount(level)} ordinary points`;
}

// The surprise above which a point is an anomaly; null if the threshold is not defined by surprise.
export function thresholdSurprise(threshold) {
  const [kind, value] = partsOf(threshold);
  const level = kind === "surprise" ? Number(value) : Number(threshold) < 0.5 ? -Math.log10(Number(threshold)) : NaN;
  return Number.isFinite(level) ? level : null;
}

function partsOf(threshold) {
  return String(threshold).trim().toLowerCase().split(/\s+/);
}

export function duration(seconds) {
  if (!isNumber(seconds)) return "Unknown";
  const [unit, name] = DURATIONS.find(([length]) => seconds >= length) ?? [1, "s"];
  return `${DIGITS.format(seconds / unit)} ${name}`;
}

export function percent(share) {
  if (!isNumber(share)) return "–";
  return share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(share * 100)} %`;
}

export function bytes(value) {
  const unit = value > 0 ? Math.min(Math.floor(Math.log(value) / Math.log(1024)), UNITS.length - 1) : 0;
  return `${TENTHS.format(value / 1024 ** unit)} ${UNITS[unit]}`;
}

export function rate(perSecond) {
  if (!isNumber(perSecond)) return "–";
  return `${(perSecond >= 100 ? INTEGER : TENTHS).format(perSecond)} /s`;
}

export function rowTime(ownTime, arrival) {
  return (ownTime ?? null) === null ? time(arrival) : ownTimeText(ownTime);
}

// A time that a point carried, in one notation whether it was posted as ISO text or computed from seconds.
export function ownTimeText(text) {
  const spaced = text.trim().replace(/^(\d{4}-\d\d-\d\d)T(?=\d)/, "$1 ");
  return spaced.replace(/^(\d{4}-\d\d-\d\d \d\d:\d\d):00(?:\.0+)?(?![.\d])/, "$1");
}

export function time(seconds) {
  const date = new Date(seconds * 1000);
  const two = (value) => String(value).padStart(2, "0");
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  if (date.toDateString() === new Date().toDateString()) return clock;
  return `${[date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-")} ${clock}`;
}

export function shortened(text, length = 40) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
