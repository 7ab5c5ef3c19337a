"""JSON without duplicate keys; NaN, Infinity and integers of any length are accepted."""

import json
from collections import Counter
from typing import Any

from imondrian.base.errors import InvalidInputError


def decode_json(text: str) -> Any:
    """Decode JSON text; an integer with more digits than Python converts is returned as its text.

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
        If a key appears more than once in an object.
    json.JSONDecodeError, RecursionError
        If the text is not JSON, or is nested too deeply.

    Examples
    --------
    >>> decode_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    >>> decode_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    imondrian.base.errors.InvalidInputError: the key 'a' appears more than once in a JSON object.
    """
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


def _integer_or_text(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys)
