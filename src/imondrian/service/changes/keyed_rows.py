"""Read the rows of a detector with a key from requests; encode them for journal entries, and decode them."""

import json
from typing import Any, NamedTuple

from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.service.changes.posted_rows import PostedRows, RowFormat, RowReader, is_unicode, shown_value
from imondrian.service.changes.row_labels import joined_pair, labels_from, split_pair
from imondrian.service.limits import Limits, Retention

MAX_KEY_LENGTH = 256  # characters


class KeyedRows(NamedTuple):
    """The rows of a request, each with its key."""

    keys: list[str]
    rows: PostedRows

    @property
    def points(self) -> Array:
        """The values of the features."""
        return self.rows.points

    def to_bytes(self) -> bytes:
        """Return the rows as the content of a journal entry."""
        keys = json.dumps(self.keys, ensure_ascii=False, separators=(",", ":")).encode()
        return joined_pair(self.rows.points.tobytes(), joined_pair(keys, self.rows.labels.to_bytes()))


class JournalledRows(NamedTuple):
    """The rows of a journal entry, each with its key."""

    points: bytes
    keys: list[str]
    own_times: list[str | None]


def split_content(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the points, the keys and the labels of a journal entry that `KeyedRows.to_bytes` wrote."""
    points, others = split_pair(content)
    return points, *split_pair(others)


def journalled_rows(content: bytes) -> JournalledRows:
    """Return the rows of a journal entry; raise InvalidInputError if it cannot be read."""
    points, encoded, labels = split_content(content)
    try:
        keys = json.loads(encoded)
        own_times = labels_from(labels).times_of(len(keys))
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"The keys or labels of a journal entry cannot be read: {error}.") from None
    return JournalledRows(points, keys, own_times)


class KeyedFormat(NamedTuple):
    """What the rows of a detector with a key must look like."""

    key: str  # name of the key in a record; in a list, the key is the first value
    row_format: RowFormat  # of a row without its key

    @classmethod
    def of(cls, configuration: dict[str, Any], limits: Limits, retention: Retention) -> "KeyedFormat":
        """Return the format of the rows of a detector with this configuration.

        All rows of a request keep their labels for display (categories and times as posted), since each row may be
        among the latest of its key.
        """
        row_format = RowFormat.of(configuration, limits, retention)
        return cls(configuration["key"], row_format._replace(max_labelled_rows=limits.points_per_request))

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        return self.row_format.features

    def new_reader(self) -> "KeyedRowReader":
        """Return a reader of such rows."""
        return KeyedRowReader(self)


class KeyedRowReader:
    """Converts decoded JSON rows with keys, block by block; errors name the point and the value.

    Parameters
    ----------
    keyed_format : KeyedFormat
        What the rows must look like.
    """

    def __init__(self, keyed_format: KeyedFormat) -> None:
        self._format, self._reader, self._keys = keyed_format, RowReader(keyed_format.row_format), list[str]()

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return self._reader.n_rows

    def add(self, rows: list[Any]) -> None:
        """Add the next rows, which must be all lists or all records."""
        first = self.n_rows
        self._keys += [self._key_of(i, row) for i, row in enumerate(rows, first)]
        self._reader.add([self._without_key(row) for row in rows])

    def result(self) -> KeyedRows:
        """Return all rows."""
        return KeyedRows(self._keys, self._reader.result())

    def _key_of(self, i: int, row: Any) -> str:
        """Return the key of a row as text, or raise InvalidInputError."""
        name, n_values = self._format.key, len(self._format.features) + 1
        if isinstance(row, dict):
            if name not in row:
                raise InvalidInputError(f"Point {i} lacks the key {name!r}.")
            return checked_key(row[name], f"{name!r} of point {i}")
        if not isinstance(row, list) or len(row) != n_values:
            raise InvalidInputError(
                f"Point {i} must be a list of {n_values} values, the key {name!r} first, but is {shown_value(row)}."
            )
        return checked_key(row[0], f"{name!r} of point {i}")

    def _without_key(self, row: Any) -> Any:
        if isinstance(row, dict):
            return {name: value for name, value in row.items() if name != self._format.key}
        return row[1:]


def checked_key(key: Any, what: str) -> str:
    """Return a key as text; raise InvalidInputError if it is invalid.

    An integer is the same key as the text of its digits.
    """
    if type(key) is int and key.bit_length() < 64:
        return str(key)
    if not isinstance(key, str) or len(key) > MAX_KEY_LENGTH or not is_unicode(key):
        raise InvalidInputError(
            f"{what} must be text of at most {MAX_KEY_LENGTH} characters, or an integer of at most 63 bits, but is"
            f" {shown_value(key)}."
        )
    return key


class LearnedRow(NamedTuple):
    """A row of a key with its score."""

    key: str
    number: int  # among the rows of the key, counted from 0
    time: float  # of arrival, in seconds since 1970
    own_time: str | None  # as posted
    point: bytes  # the values
    score: float
    threshold: float
    is_anomaly: bool
    surprise: float
    incident: int  # number of the incident of the key that is open after the row, or NO_INCIDENT
    is_borrowed: bool  # whether the row was scored by the forest that all keys share
