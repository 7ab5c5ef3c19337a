"""Limits on the size of JSON texts in files, so that a small file cannot take much memory or time when it is read."""

import numpy as np

from imondrian.base.errors import InvalidInputError

MAX_JSON_BYTES = 2**24  # names of features need at most 3 MB, and the marks of missing numbers (`StreamGaps`) 11 MB
_MAX_CONTAINERS = 2**17  # lists or objects: an empty JSON list takes 20 times its length in memory
MAX_JSON_VALUES = 2**19  # in lists and objects: parsing more would block other threads for seconds


def check_json_limits(text: bytes, what: str) -> None:
    """Raise InvalidInputError if a JSON text is too long, or has too many values; `what` is its name in the message."""
    if len(text) > MAX_JSON_BYTES:
        raise InvalidInputError(f"{what} can have at most {MAX_JSON_BYTES} bytes, but would have {len(text)}.")
    syntax = outside_strings(text)
    if syntax.count(b"[") + syntax.count(b"{") > _MAX_CONTAINERS or syntax.count(b":") > _MAX_CONTAINERS:
        raise InvalidInputError(f"{what} can have at most {_MAX_CONTAINERS} lists, objects or keys.")
    if syntax.count(b",") > MAX_JSON_VALUES:
        raise InvalidInputError(f"{what} can have at most {MAX_JSON_VALUES} values.")


def outside_strings(text: bytes) -> bytes:
    """Return the part of a JSON text in UTF-8 that is outside strings, in linear time and memory.

    If the text has a syntax error, the result may be too short. This does no harm: parsing stops at the first error.
    """
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    characters = np.frombuffer(without_escapes, np.uint8)
    is_inside = np.logical_xor.accumulate(characters == ord('"'))
    return characters[~is_inside].tobytes()
