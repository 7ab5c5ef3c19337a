"""The keys of a fleet, which are text or integers: checks, and conversion to bytes."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from imondrian.base.errors import InvalidInputError

Key = str | int


def checked_key(key: Any) -> Key:
    """Return a key as a `str` or `int`; raise InvalidInputError if it is neither text nor an integer."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, (bool, np.bool_)) or not hasattr(key, "__index__"):
        raise InvalidInputError(f"A key must be text or an integer, but is {key!r:.200}.")
    number = int(key.__index__())
    if number.bit_length() > 63:
        raise InvalidInputError(f"A key must be text or an integer of at most 63 bits, but is {key!r:.200}.")
    return number


def checked_keys(keys: Any) -> list[Key]:
    """Return a sequence of keys as a list; raise InvalidInputError if it is not a sequence of valid keys."""
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Iterable):
        raise InvalidInputError(f"keys must be a sequence of keys, but is {keys!r:.200}.")
    listed = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
    if all(type(key) is str for key in listed):
        return listed
    return [checked_key(key) for key in listed]


def encoded_key(key: Key) -> bytes:
    """Return a key as bytes; different keys have different bytes."""
    return b"i%d" % key if isinstance(key, int) else b"t" + key.encode("utf-8", "surrogatepass")


def decoded_key(content: bytes) -> Key:
    """Return the key that `encoded_key` has encoded; raise ValueError if no key has these bytes."""
    if content[:1] == b"i":
        number = int(content[1:21])
        if encoded_key(number) == content:
            return number
    if content[:1] != b"t":
        raise ValueError("a key of the store is damaged.")
    return content[1:].decode("utf-8", "surrogatepass")
