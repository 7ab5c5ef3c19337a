"""JSON without duplicate keys or deep nesting; NaN, Infinity and integers of any length are accepted."""

import json
import re
from collections import Counter
from typing import Any

from imondrian.base.errors import InvalidInputError

MAX_DEPTH = 100  # levels of nested arrays and objects; Python's own limit depends on the depth of the caller
OPEN_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'  # up to the closing quote; possessive, to need constant memory
_STRING_OR_BRACKET = re.compile(rf'{OPEN_STRING}"?|[\[\]{{}}]', re.DOTALL)  # also a string without an end


def decode_json(text: str) -> Any:
    """Decode JSON text; an integer with more digits than Python converts is returned as text.

    Parameters
    ----------
    text : str
        One JSON value.

    Returns
    -------
    object
        The value.

    Raises
    ------
    InvalidInputError
        If a key appears more than once in an object, or if values are nested more than 100 levels deep.
    json.JSONDecodeError
        If the text is not JSON.

    Examples
    --------
    >>> decode_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> decode_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    imondrian.base.errors.InvalidInputError: the key 'a' appears more than once in a JSON object.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise InvalidInputError(f"the JSON is nested more than {MAX_DEPTH} levels deep.")
    try:
        return _DECODER.decode(text)
    except (json.JSONDecodeError, InvalidInputError):
        raise
    except ValueError:  # Python's limit on digits; our own parse_int for all input would be slower
        return json.loads(text, object_pairs_hook=unique_keys, parse_int=_integer_or_text)


def unique_keys(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object as a dictionary; an `object_pairs_hook` for decoders.

    Raises
    ------
    InvalidInputError
        If a key appears more than once: it is unclear which value is meant.
    """
    values = dict(members)
    if len(values) < len(members):
        counts = Counter(key for key, _ in members)
        duplicate = next(key for key, count in counts.items() if count > 1)
        raise InvalidInputError(f"the key {duplicate!r:.60} appears more than once in a JSON object.")
    return values


def _depth(text: str) -> int:
    """Return how deeply arrays and objects are nested; brackets in strings do not count."""
    depth = deepest = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += (found[0] in "[{") - (found[0] in "]}")
        deepest = max(depth, deepest)
    return deepest


def _integer_or_text(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)
