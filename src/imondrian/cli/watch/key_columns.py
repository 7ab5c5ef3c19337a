"""The key columns of a stream: their values in a row are its key, and the fleet has a detector for each key."""

import json
from typing import Any

from imondrian.base.errors import InvalidInputError
from imondrian.fleet.keys import Key
from imondrian.tables.cells import shown
from imondrian.tables.line_records import Values

_MAX_BITS = 63  # largest size of an integer key


def key_of(record: Values, columns: list[str]) -> Key:
    """Return the key of a record: the value of its key column, or the values of several as a JSON array.

    Raises
    ------
    InvalidInputError
        If a value is missing, or is neither text nor an integer.
    """
    values = [_value(record, name) for name in columns]
    return values[0] if len(values) == 1 else json.dumps(values)


def members_of_key(key: Key, columns: list[str]) -> dict[str, Any]:
    """Return the values of the key columns by name."""
    try:
        return {columns[0]: key} if len(columns) == 1 else dict(zip(columns, json.loads(str(key)), strict=True))
    except (ValueError, TypeError):  # a key from a fleet that Python code created
        return {",".join(columns): key}


def key_text(key: Key, columns: list[str]) -> str:
    """Return a key as text for people to read, such as "host 'web-1'"."""
    return ", ".join(f"{name} {shown(value)}" for name, value in members_of_key(key, columns).items())


def _value(record: Values, name: str) -> Key:
    value = record.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InvalidInputError(f"column {name!r}: the key is missing.")
    if isinstance(value, str):
        return value
    if type(value) is not int or value.bit_length() > _MAX_BITS:
        raise InvalidInputError(
            f"column {name!r}: a key must be text or an integer of at most {_MAX_BITS} bits, but is {shown(value)}."
        )
    return value
