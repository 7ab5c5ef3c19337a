"""Bodies of requests made points: a table, records, or a record per line."""

import json
from typing import Any

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_number, as_points


def _refuse(constant: str) -> Any:
    raise InvalidInputError(f"{constant} is no number of JSON; values must be finite.")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_NUMBERS = {int, float}
LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")


def points_of(body: bytes, content_type: str, features: list[str], n_most: int) -> Array:
    """Read points: {"points": [[1.0, 2.0], ...]}, records by feature name in place of rows, or a row per line."""
    rows = _lines(body) if content_type.split(";", maxsplit=1)[0].strip().lower() in LINES else _rows(_json(body))
    if not rows:
        raise InvalidInputError("There are no points.")
    if len(rows) > n_most:
        raise InvalidInputError(f"There are {len(rows)} points, but at most {n_most} are allowed.")
    if any(isinstance(row, dict) for row in rows):
        known = set(features)
        return as_points(np.array([_record(i, row, features, known) for i, row in enumerate(rows)]), len(features))
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(features) or not _NUMBERS.issuperset(map(type, row)):
            raise InvalidInputError(f"Point {i} must be a list of {len(features)} numbers, but is {row!r:.200}.")
    return as_points(rows, len(features))


def _rows(body: Any) -> list[Any]:
    if not isinstance(body, dict) or set(body) != {"points"} or not isinstance(body["points"], list):
        raise InvalidInputError('The body must be {"points": [...]}.')
    return body["points"]


def _lines(body: bytes) -> list[Any]:
    return [_json(line) for line in body.splitlines() if line.strip()]


def _json(text: bytes) -> Any:
    try:
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"The body is not JSON: {error}.") from None


def _record(i: int, row: Any, features: list[str], known: set[str]) -> list[float]:
    """Give the values of a record in the order of the features."""
    if not isinstance(row, dict):
        raise InvalidInputError(f"Point {i} must be an object with the features, as others are, but is {row!r:.200}.")
    if row.keys() != known:
        missing = [name for name in features if name not in row]
        unknown = [name for name in row if name not in known]
        told = f"has no feature {missing[0]!r}" if missing else f"has a feature {unknown[0]!r:.100} that is not known"
        raise InvalidInputError(f"Point {i} {told}.")
    for name in features:
        if type(row[name]) not in _NUMBERS:
            raise InvalidInputError(f"{name!r} of point {i} must be a number, but is {row[name]!r:.200}.")
    return [as_number(row[name], name) for name in features]
