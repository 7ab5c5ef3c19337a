"""Lines of a stream as records: CSV with a header, or JSON objects."""

import csv
import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from imondrian.engine.nodes import MAX_SIZE
from imondrian.errors import InvalidInputError
from imondrian.tables.columns import NOT_THERE, TRUTHS
from imondrian.tables.formats import checked_separator, format_by_content, separator_in, without_mark

Record = dict[str, Any]
Parser = Callable[[bytes], Record]


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
    return lambda line: named_fields(line, separator, names), has_header


def parsed_json(line: bytes) -> Record:
    """Parse a line of NDJSON."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"this is not JSON: {error}.") from None
    if not isinstance(record, dict):
        raise InvalidInputError(f"this is not a JSON object: {_shortened(line)}.")
    return record


def named_fields(line: bytes, separator: str, names: list[str]) -> Record:
    """Parse a line of CSV."""
    fields = fields_in(line, separator)
    if len(fields) != len(names):
        raise InvalidInputError(f"there are {len(fields)} fields, but {len(names)} names of columns.")
    return dict(zip(names, fields, strict=True))


def fields_in(line: bytes, separator: str) -> list[str]:
    """Part a line of CSV into its fields."""
    try:
        return next(csv.reader([line.decode()], delimiter=separator, strict=True))
    except UnicodeDecodeError:
        raise InvalidInputError(f"this is not UTF-8 text: {_shortened(line)}.") from None
    except csv.Error as error:
        raise InvalidInputError(f"this is not CSV: {error}.") from None


def numbers_in(record: Record, names: list[str]) -> list[float]:
    """Give the values of features, or raise an error that names the first that cannot be used."""
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        cells = [record[name] for name in names]
        numbers = [float(cell) for cell in cells]
        texts = "".join([cell for cell in cells if type(cell) is str])
        if _is_plain(texts) and all(-MAX_SIZE <= number <= MAX_SIZE for number in numbers):
            return numbers
    return [number_in(record, name) for name in names]  # looks more closely, and complains


def number_in(record: Record, name: str) -> float:
    """Give the value of a feature, or raise an error that names it."""
    value = record.get(name)
    if is_missing(value):
        raise InvalidInputError(f"column {name!r}: the value is missing.")
    number = _as_number(value)
    if number is None:
        raise InvalidInputError(f"column {name!r}: {value!r} is not a number.")
    if not abs(number) <= MAX_SIZE:
        what = f"is beyond {MAX_SIZE:g} in size" if math.isfinite(number) else "is not finite"
        raise InvalidInputError(f"column {name!r}: {value} {what}.")
    return number


def is_missing(value: Any) -> bool:
    """Tell whether a value of a record stands for none."""
    return value is None or (isinstance(value, str) and value.strip() in NOT_THERE)


def as_told(cell: Any, number: float | None) -> Any:
    """Give a cell of CSV as the number that it is known to be, a whole one as such; anything else as it is."""
    if number is None or type(cell) is not str:
        return cell
    return int(cell) if cell.removeprefix("-").isdecimal() else number


def is_number(value: Any) -> bool:
    """Tell whether a value of a record stands for a number."""
    return _as_number(value) is not None


def number_or_none(value: Any) -> float | None:
    """Give the number that a value of a record stands for, if it does."""
    return None if is_missing(value) else _as_number(value)


def _as_number(value: Any) -> float | None:
    if not isinstance(value, (str, int, float)) or (isinstance(value, str) and not _is_plain(value)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return TRUTHS.get(str(value).strip().lower())


def _is_plain(text: str) -> bool:
    """Tell whether text has only letters that a number may have in a table; Python takes more for numbers."""
    return text.isascii() and "_" not in text


def _shortened(line: bytes) -> str:
    return repr(line[:40].decode(errors="replace"))
