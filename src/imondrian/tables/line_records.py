"""Lines of a stream as records: CSV, with or without a header, or JSON objects."""

import csv
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from imondrian.base.categories import category_text
from imondrian.base.errors import InvalidInputError
from imondrian.engine.nodes import MAX_VALUE
from imondrian.tables.cells import BOOLEANS, MISSING_TEXTS, shown
from imondrian.tables.checked_json import decode_json
from imondrian.tables.csv_records import MAX_FIELDS, first_wide_record
from imondrian.tables.formats import (
    LINE_FORMATS,
    check_separator,
    check_supported,
    format_by_content,
    without_byte_order_mark,
)
from imondrian.tables.table_start import guess_separator

Values = dict[str, Any]


class Record(NamedTuple):
    """The values of a line by column name; those of CSV are text."""

    values: Values
    text: str | None = None  # the JSON object as it was read; None: the line is CSV


Parser = Callable[[bytes], Record]


@dataclass(frozen=True, slots=True)
class CsvParser:
    """Parses lines of CSV into records."""

    separator: str
    names: list[str]  # of the columns

    def __call__(self, line: bytes) -> Record:
        """Parse a line."""
        fields = csv_fields(line, self.separator)
        if len(fields) != len(self.names):
            raise InvalidInputError(f"the line has {len(fields)} fields, but there are {len(self.names)} columns.")
        return Record(dict(zip(self.names, fields, strict=True)))

    def is_header(self, line: bytes) -> bool:
        """Return True if every column name is a field of the line, or if every field of the line is a column name.

        A line of numbers is a row, even if the column names are numbers.
        """
        try:
            cells = set(csv_fields(line, self.separator))
        except InvalidInputError:
            return False
        return (cells.issubset(self.names) or cells.issuperset(self.names)) and not all(map(is_number, cells))

    @property
    def has_numeric_names(self) -> bool:
        """Whether all column names are numbers, so that a row can be equal to the header."""
        return all(map(is_number, self.names))


def parser_for(
    first: bytes, file_format: str | None, separator: str | None, *, has_header: bool
) -> tuple[Parser, bool]:
    """Return a parser for the lines of a stream, and True if the first line is only a header.

    Parameters
    ----------
    first : bytes
        The first line.
    file_format : {"csv", "tsv", "ndjson"} or None
        None: recognised by the first line.
    separator : str or None
        Separator of CSV fields; None: recognised by the first line.
    has_header : bool
        True if the first line of CSV has the column names.
    """
    first = without_byte_order_mark(first)
    check_supported(first, "The stream")
    file_format = file_format or format_by_content(first, "The stream")
    if file_format == "ndjson":
        return parse_json_line, False
    if file_format not in LINE_FORMATS:
        name = "a zip or Excel file" if file_format == "xlsx" else file_format
        raise InvalidInputError(f"A stream must be CSV, TSV or NDJSON; {name} cannot be read line by line.")
    is_tsv = file_format == "tsv"
    separator = (
        check_separator(separator)
        if separator
        else "\t"
        if is_tsv
        else guess_separator([first.decode(errors="replace")])
    )
    cells = csv_fields(first, separator)
    names = cells if has_header else [f"column_{i + 1}" for i in range(len(cells))]
    if len(set(names)) < len(names):
        raise InvalidInputError(f"Column names must be unique, but are {', '.join(names)}.")
    return CsvParser(separator, names), has_header


def parse_json_line(line: bytes) -> Record:
    """Parse a line of NDJSON."""
    try:
        text = without_byte_order_mark(line).decode()
        values = decode_json(text)
    except UnicodeDecodeError:
        raise InvalidInputError(f"the line is not UTF-8 text: {_start_of(line)}.") from None
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"the line is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise InvalidInputError(f"the line is not a JSON object: {_start_of(line)}.")
    return Record(values, text)


def csv_fields(line: bytes, separator: str) -> list[str]:
    """Split a line of CSV into its fields."""
    if first_wide_record(line, separator) is not None:
        raise InvalidInputError(f"the line has more than {MAX_FIELDS:,} fields.")
    try:
        return next(csv.reader([line.decode()], delimiter=separator, strict=True))
    except UnicodeDecodeError:
        raise InvalidInputError(f"the line is not UTF-8 text: {_start_of(line)}.") from None
    except csv.Error as error:
        raise InvalidInputError(f"the line is not CSV: {error}.") from None


def numbers_in(values: Values, names: list[str]) -> list[float]:
    """Return the values of features as floats; raise an error that names the first unusable one."""
    numbers = numbers_or_none(values, names)
    return [number_in(values, name) for name in names] if numbers is None else numbers


def numbers_or_none(values: Values, names: list[str]) -> list[float] | None:
    """Return the values of features as floats; None if one is missing or not a finite number."""
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        cells = [values[name] for name in names]
        numbers = [float(cell) for cell in cells]
        texts = "".join([cell for cell in cells if type(cell) is str])
        if _has_plain_characters(texts) and all(-MAX_VALUE <= number <= MAX_VALUE for number in numbers):
            return numbers
    return None


def number_in(values: Values, name: str) -> float:
    """Return the value of a feature as a float, or raise an error that names it."""
    value = values.get(name)
    if is_missing(value):
        raise InvalidInputError(f"column {name!r}: the value is missing.")
    number = _as_number(value)
    if number is None:
        raise InvalidInputError(f"column {name!r}: {shown(value)} is not a number.")
    if not abs(number) <= MAX_VALUE:
        is_finite = isinstance(value, int) or math.isfinite(number)
        problem = f"exceeds {MAX_VALUE:g} in absolute value" if is_finite else "is not finite"
        raise InvalidInputError(f"column {name!r}: {shown(value)} {problem}.")
    return number


def category_in(values: Values, name: str) -> str | None:
    """Return the category of a feature as text, without surrounding blanks; None if it is missing.

    Raises
    ------
    InvalidInputError
        If the value is not text, a boolean or a finite number; the message names the feature.
    """
    value = values.get(name)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        text = value.strip()
        return text.lower() if text.lower() in BOOLEANS else text or None
    try:
        return category_text(value)
    except InvalidInputError:
        raise InvalidInputError(f"column {name!r}: {shown(value)} is not text, a boolean or a finite number.") from None


def is_missing(value: Any) -> bool:
    """Return True if a value of a record stands for a missing value."""
    if isinstance(value, str):
        return value in MISSING_TEXTS or value.strip() in MISSING_TEXTS
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_number(value: Any) -> bool:
    """Return True if a value of a record is a number, or text that represents one."""
    return _as_number(value) is not None


def number_or_none(value: Any) -> float | None:
    """Return the number that a value of a record represents, or None."""
    return None if is_missing(value) else _as_number(value)


def _as_number(value: Any) -> float | None:
    """Return the number that a value represents, infinite if it is too large for a float; None if there is none."""
    if isinstance(value, str):
        value = value.strip()
        if not _has_plain_characters(value):
            return None
    elif not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return -math.inf if isinstance(value, int) and value < 0 else math.inf
    except ValueError:
        return BOOLEANS.get(str(value).lower())


def _has_plain_characters(text: str) -> bool:
    """Return False for text with underscores or non-ASCII digits, which `float` accepts but tables do not."""
    return text.isascii() and "_" not in text


def _start_of(line: bytes) -> str:
    return repr(line[:40].decode(errors="replace"))
