"""Bodies of requests made points: a table, records, or a record per line.

A body is read some rows at a time, so that it never takes much more memory than its numbers, and never keeps other
threads waiting for long, however it is written.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_points

LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_NUMBERS = {int, float}
_TOGETHER = 2**16  # bytes that are read at once: a regular expression keeps all other threads waiting
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LIST = rb"\[[^]]*+\]"
_OBJECT = rb'\{[^"}]*+(?:' + _STRING + rb'[^"}]*+)*+\}'
_SPACE = rb"[ \t\n\r]*+"
_SPACES = re.compile(_SPACE)
_START = re.compile(rb"\{" + _SPACE + b"(" + _STRING + b")" + _SPACE + b":" + _SPACE + rb"\[", re.DOTALL)
_NOTHING = re.compile(_SPACE + rb"\]")
_ROWS = re.compile(b"(?:" + _SPACE + b"(?:" + _LIST + b"|" + _OBJECT + b")" + _SPACE + b",)*+", re.DOTALL)
_LAST_ROW = re.compile(_SPACE + b"(" + _LIST + b"|" + _OBJECT + b")" + _SPACE + rb"([],])", re.DOTALL)
_SECOND_KEY = re.compile(_SPACE + b"," + _SPACE + b"(" + _STRING + b")" + _SPACE + b":", re.DOTALL)
_END = re.compile(_SPACE + rb"\}")


def points_of(body: bytes, content_type: str, features: list[str], n_most: int) -> Array:
    """Read points: {"points": [[1.0, 2.0], ...]}, records by feature name in place of rows, or a row per line."""
    is_lines = content_type.split(";", maxsplit=1)[0].strip().lower() in LINES
    longest = 4_096 + 2_048 * len(features)  # bytes of a row
    blocks = _lines(body, longest) if is_lines else _table(body, longest)
    values, n_points, is_records = bytearray(), 0, False
    for rows in blocks:
        n_points += len(rows)
        if n_points > n_most:
            raise InvalidInputError(f"There are at least {n_most + 1} points, but at most {n_most} are allowed.")
        is_records = is_records if values else isinstance(rows[0], dict)
        checked = _records if is_records else _lists
        values += _as_bytes(checked(n_points - len(rows), rows, features))
    if not values:
        raise InvalidInputError("There are no points.")
    return as_points(np.frombuffer(values).reshape(-1, len(features)), len(features))


def refuse_duplicate_keys(body: bytes) -> None:
    """Refuse a body with an object that has a key twice; whatever else is wrong with it is left to others."""
    try:
        _KEY_DECODER.decode(body.decode())
    except InvalidInputError:
        raise
    except (ValueError, RecursionError):
        return


def _table(body: bytes, longest: int) -> Iterator[list[Any]]:
    """Read the rows of {"points": [...]}, some at a time."""
    position = _after_space(body, 0)
    start = _START.match(body, position, position + _TOGETHER)
    if start is None or (start[1] != b'"points"' and _string(start[1]) != "points"):
        raise InvalidInputError(f'The body is not JSON of the form {{"points": [...]}}, but {body[:80]!r}.')
    end = _NOTHING.match(body, start.end(), start.end() + _TOGETHER)
    position, n_points = start.end() if end is None else end.end(), 0
    while end is None:
        rows = _ROWS.match(body, position, position + _TOGETHER)
        if rows is None or not rows[0]:  # there is only one more, or the next is long
            rows = _LAST_ROW.match(body, position, position + longest)
            end = rows if rows is None or rows[2] == b"]" else None
        if rows is None:
            raise InvalidInputError(
                f"Point {n_points} must be a list or an object of at most {longest} bytes, and the body JSON, but there"
                f" is {body[position : position + 80]!r}."
            )
        read = _decoded(n_points, b"[" + rows[0][:-1] + b"]")
        yield read
        position, n_points = rows.end(), n_points + len(read)
    _check_end(body, position)


def _check_end(body: bytes, position: int) -> None:
    """Refuse a body that does not end after the points."""
    end = _END.match(body, position, position + _TOGETHER)
    if end is not None:
        position = _after_space(body, end.end())
        if position == len(body):
            return
    key = _SECOND_KEY.match(body, position, position + _TOGETHER)
    if key is None:
        raise InvalidInputError(f"The body is not JSON: after the points comes {body[position : position + 80]!r}.")
    if _string(key[1]) == "points":
        _refuse_duplicate("points")
    raise InvalidInputError(f'The body must have no key but "points", but has {key[1][:80]!r}.')


def _after_space(body: bytes, position: int) -> int:
    """Return where the space from a position on ends."""
    while position < len(body):
        space = _SPACES.match(body, position, position + _TOGETHER)
        if space is None or not space[0]:
            break
        position = space.end()
    return position


@cache
def _line_of(longest: int) -> re.Pattern[bytes]:
    """Return an expression for the next line, of which it finds one byte too many at most."""
    return re.compile(rb"[\n\r]{0,%d}+([^\n\r]{0,%d}+)" % (_TOGETHER, longest + 1))


def _lines(body: bytes, longest: int) -> Iterator[list[Any]]:
    """Read the rows of a body that has one in each line, some at a time."""
    rows, n_bytes = list[Any](), 0
    lines = (match[1] for match in _line_of(longest).finditer(body))
    for i, line in enumerate(line for line in lines if line and not line.isspace()):
        if len(line) > longest:
            raise InvalidInputError(f"Point {i} may have at most {longest} bytes, but has more.")
        rows.append(_decoded(i, line.strip()))
        n_bytes += len(line)
        if n_bytes > _TOGETHER:
            yield rows
            rows, n_bytes = [], 0
    if rows:
        yield rows


def _decoded(i: int, text: bytes) -> Any:
    """Read JSON in which point `i` is, or begins."""
    try:
        letters = text.decode()
        value, end = _DECODER.raw_decode(letters)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:  # an integer of more than 4,300 digits, too
        raise InvalidInputError(f"The body cannot be read from point {i} on: {error}.") from None
    if end != len(letters):
        raise InvalidInputError(f"The body is not JSON from point {i} on: there is {letters[end : end + 80]!r}.")
    return value


def _lists(first: int, rows: list[Any], features: list[str]) -> list[list[Any]]:
    """Return rows that are lists of numbers."""
    for i, row in enumerate(rows, first):
        if not isinstance(row, list) or len(row) != len(features) or not _NUMBERS.issuperset(map(type, row)):
            raise InvalidInputError(f"Point {i} must be a list of {len(features)} numbers, but is {row!r:.200}.")
    return rows


def _records(first: int, rows: list[Any], features: list[str]) -> list[list[Any]]:
    """Return the values of rows that are records, in the order of the features."""
    known = set(features)
    return [_record(i, row, features, known) for i, row in enumerate(rows, first)]


def _record(i: int, row: Any, features: list[str], known: set[str]) -> list[Any]:
    if not isinstance(row, dict):
        raise InvalidInputError(f"Point {i} must be an object with the features, as others are, but is {row!r:.200}.")
    if row.keys() != known:
        missing = [name for name in features if name not in row]
        unknown = [name for name in row if name not in known]
        told = f"has no feature {missing[0]!r}" if missing else f"has a feature {unknown[0]!r:.100} that is not known"
        raise InvalidInputError(f"Point {i} {told}.")
    values = [row[name] for name in features]
    if not _NUMBERS.issuperset(map(type, values)):
        name = next(name for name in features if type(row[name]) not in _NUMBERS)
        raise InvalidInputError(f"{name!r} of point {i} must be a number, but is {row[name]!r:.200}.")
    return values


def _as_bytes(rows: list[list[Any]]) -> bytes:
    try:
        return np.array(rows, np.float64).tobytes()
    except OverflowError as error:
        raise InvalidInputError(f"X must be numbers: {error}.") from None


def _string(text: bytes) -> str:
    try:
        return json.loads(text)
    except ValueError:
        return ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of JSON, in which no key may appear twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        _refuse_duplicate(next(name for name, count in counts.items() if count > 1))
    return made


def _refuse_duplicate(name: str) -> NoReturn:
    raise InvalidInputError(f"An object of the body must have each key once, but has {name!r:.100} more than once.")


def _refuse_constant(constant: str) -> NoReturn:
    raise InvalidInputError(f"Values must be finite numbers of JSON, but one is {constant}.")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)
_KEY_DECODER = json.JSONDecoder(object_pairs_hook=_object)
