"""Find what polars reads wrongly in NDJSON.

It silently keeps the first value of a repeated key. In a column of booleans and numbers, it reads booleans as numbers;
in a column of text and numbers, it writes numbers in its own notation (-0.0 as -0). It replaces half of a surrogate
pair if the other half is missing.
"""

import json
import re

import polars as pl

from imondrian.base.errors import InvalidInputError
from imondrian.tables.checked_json import decode_json

_NULLS = (b'": null', b'":null')
_BOOLEANS = (b"true", b"false")
_KEY_OF_BOOLEAN = re.compile(rb'("(?:[^"\\]|\\.)*+")[ \t\r\n]*+:[ \t\r\n]*+(?:true|false)')
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_HALF_PAIR = re.compile(  # of surrogates: a first half without a second, or a second without a first
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_COLONS_AFTER_BLANKS = (b" :", b"\t:", b"\r:", b"\n:")  # all white space of JSON


def check_unique_keys(block: bytes, frame: pl.DataFrame, name: str, n_lines: int) -> None:
    """Raise InvalidInputError if a key appears more than once in an object.

    A repeated key may be missed if its later values are null.

    Decoding the lines is slow, so keys are first counted by their colons. If there are as many keys as values in the
    frame, or as values and nulls together, the lines are not decoded.

    Parameters
    ----------
    block : bytes
        Lines of NDJSON.
    frame : polars.DataFrame
        The values that were read from them.
    name : str
        Name of the table in error messages.
    n_lines : int
        Number of lines before the block.
    """
    n_values = sum(map(_n_keyed_values, frame))
    n_keys = _most_keys(block, n_values)
    if n_keys == n_values or n_keys == n_values + sum(map(block.count, _NULLS)):
        return
    for i, line in enumerate(block.split(b"\n"), start=n_lines + 1):
        try:
            decode_json(line.decode())
        except InvalidInputError as error:
            raise InvalidInputError(f"{name}: line {i}: {error}") from None
        except ValueError:  # a blank line, or a notation that only polars accepts
            continue


def is_misread(block: bytes, frame: pl.DataFrame) -> bool:
    """Return True if values in the frame may differ from those in the lines of NDJSON."""
    return (
        has_booleans_as_numbers(block, frame)
        or has_numbers_as_text(block, frame)
        or (any(map(block.__contains__, (b"\\ud", b"\\uD"))) and _HALF_PAIR.search(block) is not None)
    )


def has_booleans_as_numbers(block: bytes, frame: pl.DataFrame) -> bool:
    r"""Return True if a column of numbers in the frame may have been booleans in some of the lines of NDJSON.

    If the words true and false occur in the lines exactly as often as there are booleans in the frame, keys are not
    searched.

    Examples
    --------
    >>> has_booleans_as_numbers(b'{"a": 1}\n{"a": true}', pl.DataFrame({"a": [1, 1]}))
    True
    """
    n_booleans = sum(column.count() for column in frame if column.dtype == pl.Boolean)
    if sum(map(block.count, _BOOLEANS)) == n_booleans:
        return False
    keys = {json.loads(key, strict=False) for key in set(_KEY_OF_BOOLEAN.findall(block))}
    return any(column.name in keys and column.dtype.is_numeric() for column in frame)


def has_numbers_as_text(block: bytes, frame: pl.DataFrame) -> bool:
    r"""Return True if a column of text in the frame may have been numbers in some of the lines of NDJSON.

    Keys are searched only for columns with text that looks like a number.

    Examples
    --------
    >>> has_numbers_as_text(b'{"a": "x"}\n{"a": -0.0}', pl.DataFrame({"a": ["x", "-0"]}))
    True
    >>> has_numbers_as_text(b'{"a": "x"}\n{"a": "-0"}', pl.DataFrame({"a": ["x", "-0"]}))
    False
    """
    texts = [column for column in frame if column.dtype == pl.String]
    return any(_is_key_of_number(column.name, block) for column in texts if column.str.contains(_NUMBER).any())


def _is_key_of_number(name: str, block: bytes) -> bool:
    keys = {json.dumps(name), json.dumps(name, ensure_ascii=False)}
    pattern = b"|".join(re.escape(key.encode()) for key in keys)
    return re.search(b"(?:" + pattern + rb")[ \t\r\n]*+:[ \t\r\n]*+[-0-9]", block) is not None


def _most_keys(block: bytes, n_values: int) -> int | None:
    """Return an upper bound on the number of keys: the number of colons, or of colons after a quote.

    The number of all colons is returned only if it is `n_values`. Return None if there may be white space between a
    quote and the colon after it.
    """
    n_colons = block.count(b":")
    if n_colons == n_values:
        return n_colons
    n_keys = block.count(b'":')
    return None if n_keys < n_colons and any(map(block.__contains__, _COLONS_AFTER_BLANKS)) else n_keys


def _n_keyed_values(column: pl.Series) -> int:
    """Return the number of values that follow a key and are not null, including those in nested objects."""
    return column.len() - column.null_count() + _n_inner_values(column)


def _n_inner_values(column: pl.Series) -> int:
    if isinstance(column.dtype, pl.Struct):
        return sum(map(_n_keyed_values, column.struct.unnest()))
    if isinstance(column.dtype, pl.List):
        return _n_inner_values(column.explode())
    return 0
