"""JSON decoded with care: keys of an object must differ, and integers may have any number of digits."""

import json
from collections import Counter
from typing import Any

from imondrian.errors import InvalidInputError


def decoded(text: str) -> Any:
    """Return what JSON text stands for; an integer of more digits than Python reads comes as its text.

    Text that is not JSON is a JSONDecodeError or a RecursionError, a key that appears twice an InvalidInputError.
    """
    try:
        return _DECODER.decode(text)
    except (json.JSONDecodeError, InvalidInputError):
        raise
    except ValueError:  # of Python's limit; calling a function of ours for each integer would take longer
        return json.loads(text, object_pairs_hook=_with_different_keys, parse_int=_integer_or_text)


def _with_different_keys(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object a dictionary; of a key that appears twice nobody knows which value is meant."""
    values = dict(members)
    if len(values) < len(members):
        counts = Counter(key for key, _ in members)
        twice = next(key for key, count in counts.items() if count > 1)
        raise InvalidInputError(f"the key {twice!r:.60} appears more than once in a JSON object.")
    return values


def _integer_or_text(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:
        return digits


_DECODER = json.JSONDecoder(object_pairs_hook=_with_different_keys)
