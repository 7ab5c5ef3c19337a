"""The common state of a fleet: everything that is saved besides the keys, as the values of a store or as bytes."""

import json
import struct
from hashlib import blake2b
from typing import Any, NamedTuple

from imondrian.base.errors import DamagedFileError

_FORMAT, _VERSION = "imondrian fleet", 1
_HEAD = struct.Struct("<4sI")  # magic, length of the header in bytes
_MAGIC = b"IMC1"
_DIGEST_BYTES = 16


class CommonState(NamedTuple):
    """What a fleet saves besides its keys."""

    header: dict[str, Any]  # parameters, counts, incidents and extra values, in types that JSON supports
    forest: bytes  # the common forest


def encoded_header(state: CommonState) -> bytes:
    """Return the header as JSON, with the format and its version."""
    return json.dumps({"format": _FORMAT, "version": _VERSION, **state.header}).encode()


def decoded_header(content: bytes) -> dict[str, Any]:
    """Return the header that `encoded_header` has encoded.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError, RecursionError
        If it is damaged, or has another format or version.
    """
    header: dict[str, Any] = json.loads(content.decode())
    if header["format"] != _FORMAT:
        raise ValueError(f"its format must be {_FORMAT!r}, but is {header['format']!r:.50}.")
    if header["version"] != _VERSION:
        raise ValueError(f"its version is {header['version']!r:.50}; this library reads {_VERSION}.")
    return header


def to_bytes(state: CommonState) -> bytes:
    """Return the common state as bytes, with a digest."""
    header = encoded_header(state)
    content = b"".join([_HEAD.pack(_MAGIC, len(header)), header, state.forest])
    return blake2b(content, digest_size=_DIGEST_BYTES).digest() + content


def from_bytes(content: bytes) -> CommonState:
    """Return the common state that `to_bytes` has written; raise DamagedFileError if the bytes are damaged."""
    try:
        body = memoryview(content)[_DIGEST_BYTES:]
        if blake2b(body, digest_size=_DIGEST_BYTES).digest() != bytes(content[:_DIGEST_BYTES]):
            raise ValueError("the digest does not match.")  # noqa: TRY301
        magic, n_header = _HEAD.unpack_from(body)
        if magic != _MAGIC or len(body) < _HEAD.size + n_header:
            raise ValueError("it is not the common state of a fleet.")  # noqa: TRY301
        end = _HEAD.size + n_header
        return CommonState(decoded_header(bytes(body[_HEAD.size : end])), bytes(body[end:]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error) as error:
        raise DamagedFileError(f"The common state of the fleet is damaged: {str(error)[:300]}") from None
