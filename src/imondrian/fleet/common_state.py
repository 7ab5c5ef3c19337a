"""The common state of a fleet, which is everything but its keys. It is encoded for a store, or as bytes."""

import json
import struct
from hashlib import blake2b
from typing import Any, NamedTuple

from imondrian.alarms.incidents import restored_incident
from imondrian.base.errors import DamagedFileError
from imondrian.base.json_limits import check_json_limits
from imondrian.engine.nodes import MAX_COUNT
from imondrian.fleet.key_store import CommonBytes, KeyStore
from imondrian.fleet.keys import checked_key
from imondrian.fleet.results import KeyIncident
from imondrian.forest.inputs import as_count

_HEADER_TITLE = "The header of a fleet"
_FORMAT, _VERSION = "imondrian fleet", 1
_EXTRA = "watch"  # key of the extra values in the header; the command `watch` was the first to use them
_HEAD = struct.Struct("<4sI")  # magic, length of the header in bytes
_MAGIC = b"IMC1"
_DIGEST_BYTES = 16


class CommonState(NamedTuple):
    """Everything that a fleet saves besides its keys."""

    parameters: dict[str, Any]  # of the detectors, in types that JSON supports
    borrow: bool  # whether the common forest scores rows of keys that have not warmed up; see `Fleet`
    n_rows: int
    n_dropped: int
    names: list[Any] | None  # names of the features
    incidents: list[KeyIncident]  # the latest ones, in the order of opening
    extra: dict[str, Any]  # in types that JSON supports
    forest: bytes  # the common forest


def encoded(state: CommonState) -> CommonBytes:
    """Return the state as a store holds it: the common forest, and everything else as JSON."""
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "parameters": state.parameters,
        "borrow": state.borrow,
        "n_rows": state.n_rows,
        "n_dropped": state.n_dropped,
        "names": state.names,
        "incidents": [[key, incident.as_json_value()] for key, incident in state.incidents],
        _EXTRA: state.extra,
    }
    text = json.dumps(header).encode()
    check_json_limits(text, _HEADER_TITLE)  # a header beyond these limits could not be read again
    return CommonBytes(text, state.forest)


def stored_in(store: KeyStore) -> CommonState | None:
    """Return the state in an open store, with the checks of `decoded`; None if nothing was saved."""
    saved = store.common_state()
    return None if saved is None else decoded(saved, str(store.path))


def decoded(saved: CommonBytes, source: str) -> CommonState:
    """Return the state that `encoded` has encoded.

    The parameters, `borrow`, the names and the forest are not checked.

    Raises
    ------
    DamagedFileError
        If the header is damaged, or has another format or version. The message begins with `source`.
    """
    try:
        check_json_limits(saved.header, _HEADER_TITLE)
        values = json.loads(saved.header.decode())
        if values["format"] != _FORMAT:
            raise ValueError(f"its format must be {_FORMAT!r}, but is {values['format']!r:.50}.")  # noqa: TRY301
        if values["version"] != _VERSION:
            raise ValueError(f"its version is {values['version']!r:.50}; this library reads {_VERSION}.")  # noqa: TRY301
        extra = values.get(_EXTRA, {})
        if not isinstance(extra, dict):
            raise TypeError(f"the extra values must be a dictionary, but are {extra!r:.50}.")  # noqa: TRY301
        return CommonState(
            parameters=dict(values["parameters"]),
            borrow=values["borrow"],
            n_rows=as_count(values["n_rows"], "the number of rows", 0, MAX_COUNT),
            n_dropped=as_count(values["n_dropped"], "the number of dropped keys", 0, MAX_COUNT),
            names=values["names"],
            incidents=[_decoded_incident(*pair) for pair in values["incidents"]],
            extra=extra,
            forest=saved.forest,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedFileError(f"{source}: {str(error)[:300]}") from None


def _decoded_incident(key: Any, values: Any) -> KeyIncident:
    return KeyIncident(checked_key(key), restored_incident(values, MAX_COUNT))


def to_bytes(state: CommonState) -> bytes:
    """Return the state as bytes: a digest of 16 bytes, then the rest."""
    header, forest = encoded(state)
    content = b"".join([_HEAD.pack(_MAGIC, len(header)), header, forest])
    return blake2b(content, digest_size=_DIGEST_BYTES).digest() + content


def from_bytes(content: bytes, source: str) -> CommonState:
    """Return the state that `to_bytes` has written, with the checks of `decoded`."""
    try:
        body = memoryview(content)[_DIGEST_BYTES:]
        if blake2b(body, digest_size=_DIGEST_BYTES).digest() != bytes(content[:_DIGEST_BYTES]):
            raise ValueError("the digest does not match.")  # noqa: TRY301
        magic, n_header = _HEAD.unpack_from(body)
        end = _HEAD.size + n_header
        if magic != _MAGIC or len(body) < end:
            raise ValueError("it is not the common state of a fleet.")  # noqa: TRY301
    except (ValueError, TypeError, struct.error) as error:
        raise DamagedFileError(f"{source}: {str(error)[:300]}") from None
    return decoded(CommonBytes(bytes(body[_HEAD.size : end]), bytes(body[end:])), source)
