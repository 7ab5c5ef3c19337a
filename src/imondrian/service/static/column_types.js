// Which columns of a table are numbers, which are categories, and which are not features.

import { isNumberText, isTimeText } from "./csv.js";

const MAX_LENGTH = 256; // characters of a category
const MIN_ROWS = 20; // fewer rows do not show whether a column is an id
const ID_SHARE = 0.9; // a column is an id if a larger share of its values differ

export function columnTypes({ header, rows }) {
  return header.map((name, column) => {
    const cells = rows.map((row) => (row[column] ?? "").trim()).filter((cell) => cell !== "");
    const reason = header.indexOf(name) < column ? "its name appears twice" : reasonAgainst(name, cells);
    return { name, isCategory: !cells.every(isNumberText), isTime: cells.length > 0 && cells.every(isTimeText), reason };
  });
}

// Returns why a column is not a feature, or null if it is one.
function reasonAgainst(name, cells) {
  if (name === "") return "it has no name";
  if (name.includes(",")) return "its name has a comma";
  if (cells.length === 0) return "it is empty";
  if (cells.every(isNumberText)) return isCounter(cells.map(Number)) ? "it counts the rows" : null;
  if (cells.every(isTimeText)) return "it has times";
  if (cells.some((cell) => cell.length > MAX_LENGTH)) return "it has long text";
  return isId(cells) ? "nearly all its values differ" : null;
}

function isCounter(numbers) {
  return numbers.length >= MIN_ROWS && numbers.every((value, i) => Number.isInteger(value) && (i === 0 || value > numbers[i - 1]));
}

function isId(cells) {
  return cells.length >= MIN_ROWS && new Set(cells).size > ID_SHARE * cells.length;
}
