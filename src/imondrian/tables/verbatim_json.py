"""Records written back verbatim as members of a JSON object, to which results can be added."""

import json
import math
import re
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted

from imondrian.tables.checked_json import OPEN_STRING
from imondrian.tables.line_records import Record, Values, number_or_none

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?").fullmatch
_ORDINARY_NUMBERS = re.compile(  # one JSON number per line; all are finite, since none reaches 1e200
    r"(?:-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,2})?\n)*"
).fullmatch
_LEADING_ZEROS = re.compile(r"^(-?)0+(?=[0-9])")
_GAP = re.compile(r"[ \t\r\n,:]*").match  # between keys and values
_STRING_OR_CONSTANT = re.compile(rf'{OPEN_STRING}"|-?Infinity|NaN')
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # finds the ends of values; numbers may have any length


def json_members(record: Record, features: AbstractSet[str], left_out: Collection[str] = ()) -> str:
    """Return the members of a record as JSON text without the braces.

    JSON values are copied verbatim, except that NaN and the infinities, which Python reads but JSON does not
    have, become null. CSV cells become strings; features that are finite numbers become numbers, with all their digits
    unless the notation is not valid JSON.

    Parameters
    ----------
    record : Record
        The record.
    features : set of str
        Names of the features.
    left_out : collection of str
        Names of members to leave out.

    Examples
    --------
    >>> json_members(Record({"a": 1}, text='{"a": 1.0, "b": NaN}'), set())
    '"a": 1.0, "b": null'
    >>> json_members(Record({"a": "1.50", "b": "2"}), {"a"})
    '"a": 1.50, "b": "2"'
    """
    if record.text is None:
        return _csv_members(record.values, features, left_out)
    text = record.text.strip()
    if "NaN" in text or "Infinity" in text:
        text = _STRING_OR_CONSTANT.sub(_constant_as_null, text)
    if left_out:
        return ", ".join(member for name, member in _split_members(text) if name not in left_out)
    return text[1:-1].strip()


def _constant_as_null(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else "null"


def _split_members(text: str) -> Iterator[tuple[str, str]]:
    """Split a valid JSON object into its members; yield the name and the text of each."""
    start = _end_of_gap(text, 1)
    while text[start] != "}":
        name, end = _DECODER.raw_decode(text, start)
        _, end = _DECODER.raw_decode(text, _end_of_gap(text, end))
        yield name, text[start:end]
        start = _end_of_gap(text, end)


def _end_of_gap(text: str, start: int) -> int:
    gap = _GAP(text, start)
    return start if gap is None else gap.end()


def _csv_members(values: Values, features: AbstractSet[str], left_out: Collection[str]) -> str:
    if left_out:
        values = {name: cell for name, cell in values.items() if name not in left_out}
    if _ORDINARY_NUMBERS("".join([f"{cell}\n" for name, cell in values.items() if name in features])):
        cells = [cell if name in features else quoted(cell) for name, cell in values.items()]
    else:
        cells = [_number_or_string(cell) if name in features else quoted(cell) for name, cell in values.items()]
    return _members_template(tuple(values)) % tuple(cells)


@lru_cache(maxsize=16)
def _members_template(names: tuple[str, ...]) -> str:
    """Return members with a `%s` for each value."""
    return ", ".join(f"{quoted(name).replace('%', '%%')}: %s" for name in names)


def _number_or_string(cell: str) -> str:
    """Return the cell of a feature as a JSON number, or as a string if it is not a finite number.

    Digits are kept unless the notation is not valid JSON.
    """
    if _JSON_NUMBER(cell) and math.isfinite(float(cell)):
        return cell
    number = number_or_none(cell)
    if number is None or not math.isfinite(number):
        return quoted(cell)
    digits = _LEADING_ZEROS.sub(r"\1", cell.strip().removeprefix("+"))
    return digits if _JSON_NUMBER(digits) else repr(number)
