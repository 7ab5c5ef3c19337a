// Reading and writing CSV: detects the separator, supports quoted cells, matches columns to features.

const SEPARATORS = [",", ";", "\t"];
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const TIME = /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$/;

export class CsvError extends Error {}

export function parse(text) {
  const clean = text.replace(/^\uFEFF/, "");
  const separator = separatorOf(clean);
  const [header, ...rows] = recordsOf(clean, separator);
  if (header === undefined) throw new CsvError("The table is empty.");
  if (rows.length === 0) throw new CsvError("The table has a header, but no rows.");
  return { separator, header: header.map((name) => name.trim()), rows };
}

export function pointsOf({ header, rows }, { features, categorical, missing }) {
  const columns = features.map((name) => columnOf(header, name));
  const read = features.map((name) => (categorical.includes(name) ? categoryOf : missing === "raise" ? numberOf : numberOrNull));
  const problems = [];
  const points = rows.map((row, i) => {
    if (row.length > header.length) problems.push(`Row ${i + 1} has ${row.length} cells, but the header has ${header.length}.`);
    return columns.map((column, j) => read[j]((row[column] ?? "").trim(), i + 1, header[column], problems));
  });
  if (problems.length > 0) throw new CsvError(summaryOf(problems));
  return points;
}

// Returns the times of the rows, with null for a row without a time; or null, if no times are sent. All times of a time
// series are sent, and the service refuses invalid ones. Other times are only shown, and are sent only if all are valid.
export function timesOf({ header, rows }, { features, time: name, preset }) {
  const column = features.includes(name) ? -1 : header.indexOf(name);
  const times = column === -1 ? [] : rows.map((row) => (row[column] ?? "").trim());
  const isSent = preset === "series" || times.every((time) => time === "" || isTimeText(time));
  return isSent && times.some((time) => time !== "") ? times.map((time) => timeOf(time, preset)) : null;
}

function timeOf(text, preset) {
  if (text === "") return null;
  return preset === "series" && isNumberText(text) ? Number(text) : text;
}

export function isNumberText(text) {
  return NUMBER.test(text) && Number.isFinite(Number(text));
}

export function isTimeText(text) {
  return TIME.test(text);
}

export function write(records, separator) {
  const isSpecial = (cell) => cell.includes(separator) || /["\r\n]/.test(cell);
  const quoted = (cell) => (isSpecial(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  return records.map((record) => record.map(quoted).join(separator) + "\n");
}

function separatorOf(text) {
  const line = text.replaceAll(/"[^"]*"/g, "").trimStart().split(/[\r\n]/, 1)[0];
  const counts = SEPARATORS.map((separator) => line.split(separator).length);
  return SEPARATORS[counts.indexOf(Math.max(...counts))];
}

function recordsOf(text, separator) {
  const records = [];
  let record = [];
  for (let position = 0; position < text.length; ) {
    const { cell, end } = cellAt(text, position, separator, records.length);
    record.push(cell);
    position = end + 1;
    if (text[end] === separator && position < text.length) continue;
    if (text[end] === separator) record.push("");
    if (text[end] === "\r" && text[position] === "\n") position += 1;
    if (record.length > 1 || cell.trim() !== "") records.push(record);
    record = [];
  }
  return records;
}

function cellAt(text, start, separator, row) {
  const close = text[start] === '"' ? closingQuote(text, start, row) : start - 1;
  let end = close + 1;
  while (end < text.length && text[end] !== separator && text[end] !== "\n" && text[end] !== "\r") end += 1;
  const inside = close < start ? "" : text.slice(start + 1, close).replaceAll('""', '"');
  return { cell: inside + text.slice(close + 1, end), end };
}

function closingQuote(text, start, row) {
  let position = text.indexOf('"', start + 1);
  while (position !== -1 && text[position + 1] === '"') position = text.indexOf('"', position + 2);
  if (position === -1) throw new CsvError(`${row === 0 ? "The header" : `Row ${row}`} has a quote that is not closed.`);
  return position;
}

function columnOf(header, name) {
  const column = header.indexOf(name.trim());
  if (column === -1) throw new CsvError(`The table has no column “${name}”. Its columns are: ${header.slice(0, 30).join(", ")}.`);
  if (header.indexOf(name.trim(), column + 1) !== -1) throw new CsvError(`The table has two columns “${name}”.`);
  return column;
}

function categoryOf(text) {
  return text === "" ? null : text;
}

function numberOrNull(text, row, column, problems) {
  return text === "" ? null : numberOf(text, row, column, problems);
}

function numberOf(text, row, column, problems) {
  if (isNumberText(text)) return Number(text);
  const what = text === "" ? "the cell is empty" : `“${text.slice(0, 60)}” is not a number`;
  problems.push(`Row ${row}, column “${column}”: ${what}.`);
  return null;
}

function summaryOf(problems) {
  const rest = problems.length - 1;
  return rest === 0 ? problems[0] : `${problems[0]} There ${rest === 1 ? "is 1 more problem" : `are ${rest} more problems`}.`;
}
