"""Lines of a stream as records: CSV with a header, or JSON objects."""

import csv
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from imondrian.engine.nodes import MAX_SIZE
from imondrian.errors import InvalidInputError
from imondrian.tables.columns import NOT_THERE, TRUTHS, shown
from imondrian.tables.formats import checked_separator, format_by_content, separator_in, without_mark
from imondrian.tables.objects import decoded

Values = dict[str, Any]


class Record(NamedTuple):
    """The values of a line by name, those of CSV as text."""

    values: Values
    text: str | None = None  # the JSON object as it came; None: the line is CSV


Parser = Callable[[bytes], Record]


@dataclass(frozen=True, slots=True)
class CsvParser:
    """Makes records of lines of CSV."""

    separator: str
    names: list[str]  # of the columns

    def __call__(self, line: bytes) -> Record:
        """Parse a line."""
        fields = fields_in(line, self.separator)
        if len(fields) != len(self.names):
            raise InvalidInputError(f"there are {len(fields)} fields, but {len(self.names)} names of columns.")
        return Record(dict(zip(self.names, fields, strict=True)))

    def is_header(self, line: bytes) -> bool:
        """Tell whether a line names columns: all of these in any order, perhaps with others, or some of these only."""
        try:
            cells = set(fields_in(line, self.separator))
        except InvalidInputError:
            return False
        return cells.issubset(self.names) or cells.issuperset(self.names)


def parser_for(first: bytes, kind: str | None, separator: str | None, *, has_header: bool) -> tuple[Parser, bool]:
    """Make what turns lines into records, from the first of them; tell also whether that line is only a header."""
    first = without_mark(first)
    kind = kind or format_by_content(first, "The stream")
    if kind == "ndjson":
        return parsed_json, False
    if kind == "parquet":
        raise InvalidInputError("A stream must be CSV, TSV or NDJSON; Parquet cannot be read line by line.")
    separator = checked_separator(separator) if separator else "\t" if kind == "tsv" else separator_in(first)
    cells = fields_in(first, separator)
    names = cells if has_header else [f"column_{i + 1}" for i in range(len(cells))]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"Names of columns must differ, but are {', '.join(names)}.")
    return CsvParser(separator, names), has_header


def parsed_json(line: bytes) -> Record:
    """Parse a line of NDJSON."""
    try:
        text = without_mark(line).decode()
        values = decoded(text)
    except UnicodeDecodeError:
        raise InvalidInputError(f"this is not UTF-8 text: {_start_of(line)}.") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError(f"this is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise InvalidInputError(f"this is not a JSON object: {_start_of(line)}.")
    return Record(values, text)


def fields_in(line: bytes, separator: str) -> list[str]:
    """Part a line of CSV into its fields."""
    try:
        return next(csv.reader([line.decode()], delimiter=separator, strict=True))
    except UnicodeDecodeError:
        raise InvalidInputError(f"this is not UTF-8 text: {_start_of(line)}.") from None
    except csv.Error as error:
        raise InvalidInputError(f"this is not CSV: {error}.") from None


def numbers_in(values: Values, names: list[str]) -> list[float]:
    """Return the values of features, or raise an error that names the first that cannot be used."""
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        cells = [values[name] for name in names]
        numbers = [float(cell) for cell in cells]
        texts = "".join([cell for cell in cells if type(cell) is str])
        if _is_plain(texts) and all(-MAX_SIZE <= number <= MAX_SIZE for number in numbers):
            return numbers
    return [number_in(values, name) for name in names]  # looks more closely, and complains


def number_in(values: Values, name: str) -> float:
    """Return the value of a feature, or raise an error that names it."""
    value = values.get(name)
    if is_missing(value):
        raise InvalidInputError(f"column {name!r}: the value is missing.")
    number = _as_number(value)
    if number is None:
        raise InvalidInputError(f"column {name!r}: {shown(value)} is not a number.")
    if not abs(number) <= MAX_SIZE:
        is_finite = isinstance(value, int) or math.isfinite(number)
        what = f"is beyond {MAX_SIZE:g} in size" if is_finite else "is not finite"
        raise InvalidInputError(f"column {name!r}: {shown(value)} {what}.")
    return number


def is_missing(value: Any) -> bool:
    """Tell whether a value of a record stands for none."""
    return value is None or (isinstance(value, str) and value.strip() in NOT_THERE)


def is_number(value: Any) -> bool:
    """Tell whether a value of a record stands for a number."""
    return _as_number(value) is not None


def number_or_none(value: Any) -> float | None:
    """Return the number that a value of a record stands for, if it does."""
    return None if is_missing(value) else _as_number(value)


def _as_number(value: Any) -> float | None:
    """Return the number that a value stands for, infinite if it is beyond all floating-point numbers."""
    if not isinstance(value, (str, int, float)) or (isinstance(value, str) and not _is_plain(value)):
        return None
    try:
        return float(value)
    except OverflowError:
        return -math.inf if isinstance(value, int) and value < 0 else math.inf
    except ValueError:
        return TRUTHS.get(str(value).strip().lower())


def _is_plain(text: str) -> bool:
    """Tell whether text has only letters that a number may have in a table; Python takes more for numbers."""
    return text.isascii() and "_" not in text


def _start_of(line: bytes) -> str:
    return repr(line[:40].decode(errors="replace"))
