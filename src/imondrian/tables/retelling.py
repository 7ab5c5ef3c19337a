"""Records written again as they came, as the members of a JSON object to which others can be added."""

import json
import math
import re
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from imondrian.tables.records import Record, Values, number_or_none

_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?").fullmatch  # a number in JSON
_USUAL_NUMBERS = re.compile(  # lines of numbers as JSON has them, finite since none reaches 1e200
    r"(?:-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?\n)*"
).fullmatch
_LEADING_ZEROS = re.compile(r"^(-?)0+(?=[0-9])")
_BETWEEN = re.compile(r"[ \t\r\n,:]*").match  # what stands between keys and values
_TEXT_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # finds where values end; numbers may have any length


def members_of(record: Record, features: AbstractSet[str], left_out: Collection[str] = ()) -> str:
    """Return the members of a record as JSON, without braces around them and without those that are left out.

    Values of JSON are the same characters as before, but for NaN and the infinities, which Python reads but JSON does
    not know: they become null. Cells of CSV are text, but for features that are finite numbers.
    """
    if record.text is None:
        return _members_of_csv(record.values, features, left_out)
    text = record.text.strip()
    if "NaN" in text or "Infinity" in text:
        text = _TEXT_OR_CONSTANT.sub(_null_for_constant, text)
    if left_out:
        return ", ".join(member for name, member in _members_in(text) if name not in left_out)
    return text[1:-1].strip()


def _null_for_constant(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else "null"


def _members_in(text: str) -> Iterator[tuple[str, str]]:
    """Part a valid JSON object into its members; each comes with its name."""
    start = _end_of_gap(text, 1)
    while text[start] != "}":
        name, end = _DECODER.raw_decode(text, start)
        _, end = _DECODER.raw_decode(text, _end_of_gap(text, end))
        yield name, text[start:end]
        start = _end_of_gap(text, end)


def _end_of_gap(text: str, start: int) -> int:
    gap = _BETWEEN(text, start)
    return start if gap is None else gap.end()


def _members_of_csv(values: Values, features: AbstractSet[str], left_out: Collection[str]) -> str:
    if left_out:
        values = {name: cell for name, cell in values.items() if name not in left_out}
    if _USUAL_NUMBERS("".join([f"{cell}\n" for name, cell in values.items() if name in features])):
        cells = [cell if name in features else quoted(cell) for name, cell in values.items()]
    else:
        cells = [_number_or_text(cell) if name in features else quoted(cell) for name, cell in values.items()]
    return _members_to_fill(tuple(values)) % tuple(cells)


@lru_cache(maxsize=16)
def _members_to_fill(names: tuple[str, ...]) -> str:
    """Return members with a place for each value."""
    return ", ".join(f"{quoted(name).replace('%', '%%')}: %s" for name in names)


def _number_or_text(cell: str) -> str:
    """Return the cell of a feature as a number of JSON with all its digits, or as text if it is not a finite number."""
    if _LITERAL(cell) and math.isfinite(float(cell)):
        return cell
    number = number_or_none(cell)
    if number is None or not math.isfinite(number):
        return quoted(cell)
    digits = _LEADING_ZEROS.sub(r"\1", cell.strip().removeprefix("+"))
    return digits if _LITERAL(digits) else repr(number)
