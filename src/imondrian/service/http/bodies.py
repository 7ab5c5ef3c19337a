"""Parsing of request bodies, which contain points (lists, records, or one row per line) or a configuration.

A body with points is parsed in blocks of rows. Whatever it contains, parsing it never needs much more memory than its
values, and never blocks other threads for long.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn

from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.keyed_rows import KeyedFormat, KeyedRows
from imondrian.service.changes.posted_rows import PostedRows, RowFormat

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_BLOCK_BYTES = 2**16  # parsed at once: matching a regular expression blocks all other threads
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LIST = rb'\[[^"\]]*+(?:' + _STRING + rb'[^"\]]*+)*+\]'
_OBJECT = rb'\{[^"}]*+(?:' + _STRING + rb'[^"}]*+)*+\}'
_SPACE = rb"[ \t\n\r]*+"
_WHITE_SPACE = re.compile(_SPACE)
_START = re.compile(rb"\{" + _SPACE + b"(" + _STRING + b")" + _SPACE + b":" + _SPACE + rb"\[", re.DOTALL)
_EMPTY_LIST = re.compile(_SPACE + rb"\]")
_ROWS = re.compile(b"(?:" + _SPACE + b"(?:" + _LIST + b"|" + _OBJECT + b")" + _SPACE + b",)*+", re.DOTALL)
_ROWS_WITHOUT_TEXT = re.compile(rb"(?:" + _SPACE + rb"\[[^]]*+\]" + _SPACE + b",)*+")  # a third faster than `_ROWS`
_LAST_ROW = re.compile(_SPACE + b"(" + _LIST + b"|" + _OBJECT + b")" + _SPACE + rb"([],])", re.DOTALL)
_SECOND_KEY = re.compile(_SPACE + b"," + _SPACE + b"(" + _STRING + b")" + _SPACE + b":", re.DOTALL)
_END = re.compile(_SPACE + rb"\}")


def rows_of(
    body: bytes, content_type: str, row_format: RowFormat | KeyedFormat, max_points: int
) -> PostedRows | KeyedRows:
    """Return the rows in a request body.

    Parameters
    ----------
    body : bytes
        `{"points": [[1.0, 2.0], ...]}`, the same with records by feature name instead of lists, or one list or record
        per line.
    content_type : str
        One of `NDJSON_TYPES` for one row per line; JSON otherwise.
    row_format : RowFormat or KeyedFormat
        What the rows must look like.
    max_points : int
        The largest number of points allowed.
    """
    is_lines = content_type.split(";", maxsplit=1)[0].strip().lower() in NDJSON_TYPES
    max_row_bytes = 4_096 + 2_048 * len(row_format.features)
    blocks = _line_blocks(body, max_row_bytes) if is_lines else _json_blocks(body, max_row_bytes)
    reader = row_format.new_reader()
    for rows in blocks:
        if reader.n_rows + len(rows) > max_points:
            raise InvalidInputError(
                f"There are at least {max_points + 1} points, but at most {max_points} are allowed."
            )
        reader.add(rows)
    return reader.result()


def object_of(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; raise InvalidInputError if it is not an object or has a key twice."""
    try:
        found = _DECODER.decode(body.decode())
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:  # also raised for an integer of more than 4,300 digits
        raise InvalidInputError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidInputError(f"The body must be a JSON object, but begins with {body[:80]!r}.")
    return found


def _json_blocks(body: bytes, max_row_bytes: int) -> Iterator[list[Any]]:
    """Yield the rows of `{"points": [...]}` in blocks."""
    position = _skip_white_space(body, 0)
    start = _START.match(body, position, position + _BLOCK_BYTES)
    if start is None or (start[1] != b'"points"' and _string(start[1]) != "points"):
        raise InvalidInputError(f'The body is not JSON of the form {{"points": [...]}}: it begins with {body[:80]!r}.')
    end = _EMPTY_LIST.match(body, start.end(), start.end() + _BLOCK_BYTES)
    position, n_points = start.end() if end is None else end.end(), 0
    while end is None:
        has_text = body.find(b'"', position, position + _BLOCK_BYTES) >= 0
        rows = (_ROWS if has_text else _ROWS_WITHOUT_TEXT).match(body, position, position + _BLOCK_BYTES)
        if rows is None or not rows[0]:  # only one row is left, or the next one is long
            rows = _LAST_ROW.match(body, position, position + max_row_bytes)
            end = rows if rows is None or rows[2] == b"]" else None
        if rows is None:
            raise InvalidInputError(
                f"Point {n_points} must be a JSON list or object of at most {max_row_bytes} bytes, but is"
                f" {body[position : position + 80]!r}."
            )
        block = _decoded(n_points, b"[" + rows[0][:-1] + b"]")
        yield block
        position, n_points = rows.end(), n_points + len(block)
    _check_end(body, position)


def _check_end(body: bytes, position: int) -> None:
    """Raise InvalidInputError if the body does not end after the points."""
    end = _END.match(body, position, position + _BLOCK_BYTES)
    if end is not None:
        position = _skip_white_space(body, end.end())
        if position == len(body):
            return
    key = _SECOND_KEY.match(body, position, position + _BLOCK_BYTES)
    if key is None:
        raise InvalidInputError(f"The body is not JSON: the points are followed by {body[position : position + 80]!r}.")
    if _string(key[1]) == "points":
        _refuse_duplicate("points")
    raise InvalidInputError(f'The only key of the body must be "points", but it also has {key[1][:80]!r}.')


def _skip_white_space(body: bytes, position: int) -> int:
    """Return the position of the first byte that is not white space."""
    while position < len(body):
        space = _WHITE_SPACE.match(body, position, position + _BLOCK_BYTES)
        if space is None or not space[0]:
            break
        position = space.end()
    return position


@cache
def _line_pattern(max_row_bytes: int) -> re.Pattern[bytes]:
    """Return a pattern for the next line, which matches at most one byte more than a row may have."""
    return re.compile(rb"[\n\r]{0,%d}+([^\n\r]{0,%d}+)" % (_BLOCK_BYTES, max_row_bytes + 1))


def _line_blocks(body: bytes, max_row_bytes: int) -> Iterator[list[Any]]:
    """Yield the rows of a body with one row per line, in blocks."""
    rows, n_bytes = list[Any](), 0
    lines = (match[1] for match in _line_pattern(max_row_bytes).finditer(body))
    for i, line in enumerate(line for line in lines if line and not line.isspace()):
        if len(line) > max_row_bytes:
            raise InvalidInputError(f"Point {i} must have at most {max_row_bytes} bytes, but is longer.")
        rows.append(_decoded(i, line.strip()))
        n_bytes += len(line)
        if n_bytes > _BLOCK_BYTES:
            yield rows
            rows, n_bytes = [], 0
    if rows:
        yield rows


def _decoded(i: int, content: bytes) -> Any:
    """Decode JSON that is point `i`, or a list of points that starts with it."""
    try:
        text = content.decode()
        value, end = _DECODER.raw_decode(text)
    except InvalidInputError:
        raise
    except (ValueError, RecursionError) as error:  # also raised for an integer of more than 4,300 digits
        raise InvalidInputError(f"The body is not valid JSON from point {i} on: {error}.") from None
    if end != len(text):
        raise InvalidInputError(f"The body is not valid JSON from point {i} on: unexpected {text[end : end + 80]!r}.")
    return value


def _string(text: bytes) -> str:
    try:
        return json.loads(text)
    except ValueError:
        return ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dictionary, or raise InvalidInputError if a key appears twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        _refuse_duplicate(next(name for name, count in counts.items() if count > 1))
    return result


def _refuse_duplicate(name: str) -> NoReturn:
    raise InvalidInputError(f"An object in the body has the key {name!r:.100} more than once.")


def _refuse_constant(constant: str) -> NoReturn:
    raise InvalidInputError(f"Values must be finite JSON numbers, but one is {constant}.")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)
