"""Answers to read requests about a detector with a key: its keys, their latest rows, scores and explanations."""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.keyed_rows import KeyedRows, LearnedRow
from imondrian.service.detectors.registry import DetectorHandle, Registry
from imondrian.service.errors import NotFoundError
from imondrian.service.http import schemas
from imondrian.service.http.reasons import PointExplainer
from imondrian.service.limits import MIB, Limits
from imondrian.service.storage.key_rows import KeySummary
from imondrian.stream.detector import StreamDetector

Order = Literal["surprise", "name", "time"]
_SORTED_AT_ONCE = 4_096  # keys: sorting holds the GIL
_COPIED_BYTES = 4 * MIB  # detectors of keys are copied in blocks of at most this size, but at least one at a time
_ORDERS: dict[str, Callable[[tuple[str, KeySummary]], Any]] = {
    "surprise": lambda item: (-item[1].surprise, item[0]),
    "name": lambda item: item[0],
    "time": lambda item: (-item[1].time, item[0]),
}


def refuse_key(handle: DetectorHandle, reason: str) -> None:
    """Raise InvalidInputError if a detector has a key."""
    if handle.worker.is_keyed:
        raise InvalidInputError(f"The detector {handle.record.name!r} has one detector per key: {reason}.")


def needed_key(handle: DetectorHandle, key: str | None) -> str | None:
    """Return the key of a request, or None for a detector without a key.

    Raises
    ------
    InvalidInputError
        If the detector has a key and the request has none, or the request has a key and the detector has none.
    """
    if key is not None:
        handle.worker.keys  # noqa: B018 (raises an error)
    elif handle.worker.is_keyed:
        raise InvalidInputError(
            f"The detector {handle.record.name!r} has one detector per key: the query parameter `key` is needed."
        )
    return key


def keys_of(handle: DetectorHandle, search: str, order: Order, after: int, limit: int) -> schemas.Keys:
    """Return some of the keys that contain a text, ignoring case.

    Nothing here holds the GIL for long, even if there are very many keys.
    """
    view, text = handle.worker.keys, search.casefold()
    summaries, known = view.rows.summaries, list(view.rows.summaries)
    names = (key for key in known if text in key.casefold()) if text else known
    found = [(key, summary) for key in names if (summary := summaries.get(key)) is not None]  # None: just forgotten
    end = after + limit
    return schemas.Keys(
        keys=[
            schemas.Key(
                key=key,
                n_rows=summary.n_rows,
                time=summary.time,
                surprise=summary.surprise,
                anomaly_score=summary.score,
                is_anomaly=summary.is_anomaly,
                has_open_incident=view.incidents.has_open(key),
            )
            for key, summary in _page(found, _ORDERS[order], after, end)
        ],
        n_keys=len(known),
        n_found=len(found),
        next=end if end < len(found) else None,
    )


def _page(
    found: list[tuple[str, KeySummary]], order: Callable[[tuple[str, KeySummary]], Any], after: int, end: int
) -> Iterator[tuple[str, KeySummary]]:
    """Return a part of the sorted keys; they are sorted in pieces, and merged, so that other threads can run."""
    pieces = (found[i : i + _SORTED_AT_ONCE] for i in range(0, len(found), _SORTED_AT_ONCE))
    return islice(merge(*(sorted(piece, key=order)[:end] for piece in pieces), key=order), after, end)


def keyed_history_of(registry: Registry, handle: DetectorHandle, key: str, after: int, limit: int) -> schemas.History:
    """Return the latest rows of a key and their scores."""
    rows = [row for row in _latest_rows(registry, handle, key) if row.number > after][-limit:]
    return schemas.History(
        index=[row.number for row in rows],
        time=[row.time for row in rows],
        own_time=[row.own_time for row in rows],
        values=[_values(row) for row in rows],
        anomaly_score=[row.score for row in rows],
        surprise=[row.surprise for row in rows],
        threshold=[row.threshold for row in rows],
        is_anomaly=[row.is_anomaly for row in rows],
        incident=[schemas.known_incident(row.incident) for row in rows],
        expected_low=None,
        expected_high=None,
        key=key,
        is_borrowed=[row.is_borrowed for row in rows],
    )


class FoundRow(NamedTuple):
    """A learned row of a key, and a copy of the detector of the key."""

    row: LearnedRow
    detector: StreamDetector


def keyed_row_of(registry: Registry, handle: DetectorHandle, key: str, number: int) -> FoundRow:
    """Return a learned row of a key, and a copy of the key's detector; wait while a snapshot is being saved."""
    rows = [row for row in _latest_rows(registry, handle, key) if row.number == number]
    if not rows:
        raise NotFoundError(f"Row {number} of the key is no longer among its latest rows, or has not been seen.")
    return FoundRow(rows[0], _detector_of(handle, key))


def explanation_of_keyed_row(handle: DetectorHandle, found: FoundRow) -> schemas.ExplainedRow:
    """Return a learned row of a key, explained by the current detector of the key without this row in its window."""
    row, explainer = found.row, PointExplainer(found.detector, handle.record.configuration["features"])
    return schemas.ExplainedRow(
        index=row.number,
        time=row.time,
        own_time=row.own_time,
        values=_values(row),
        anomaly_score=row.score,
        surprise=row.surprise,
        threshold=row.threshold,
        is_anomaly=row.is_anomaly,
        incident=schemas.known_incident(row.incident),
        explanation=explainer.learned_point(np.array([_values(row)]), [_values(row)], row.score),
        key=row.key,
        is_borrowed=row.is_borrowed,
    )


class KeyedScorer:
    """Scores each point with the detector of its key, as if it were the next point of the key.

    Parameters
    ----------
    rows : KeyedRows
        The points, and their keys.
    """

    def __init__(self, rows: KeyedRows) -> None:
        self._rows, n_rows = rows, len(rows.keys)
        self._columns = {name: [0.0] * n_rows for name in ("anomaly_score", "surprise", "threshold")}
        self._n_seen = [0] * n_rows

    def add(self, detector: StreamDetector, positions: list[int]) -> None:
        """Score the points of one key, given its detector and their positions."""
        columns, scores = self._columns, detector.score(self._rows.points[positions])
        figures = zip(positions, scores.tolist(), detector.surprise(scores).tolist(), strict=True)
        for i, score, surprise in figures:
            columns["anomaly_score"][i], columns["surprise"][i] = score, surprise
            columns["threshold"][i], self._n_seen[i] = detector.threshold_score, detector.n_seen

    def response(self) -> schemas.KeyedScores:
        """Return the scores of all points."""
        return schemas.KeyedScores(key=self._rows.keys, **self._columns, n_seen=self._n_seen)


class KeyedExplainer:
    """Divides the score of each point among the features, as if it were the next point of its key.

    Parameters
    ----------
    rows : KeyedRows
        The points, and their keys.
    features : list of str
        The names of the features.
    """

    def __init__(self, rows: KeyedRows, features: list[str]) -> None:
        self._rows, self._features = rows, features
        self._found = dict[int, schemas.KeyedExplanation]()

    def add(self, detector: StreamDetector, positions: list[int]) -> None:
        """Explain the points of one key, given its detector and their positions."""
        points, explainer = self._rows.points, PointExplainer(detector, self._features)
        scores = detector.score(points[positions])
        for i, score, surprise in zip(positions, scores.tolist(), detector.surprise(scores).tolist(), strict=True):
            reasons = explainer.next_point(points[i], points[i].tolist(), None)
            self._found[i] = schemas.KeyedExplanation(
                anomaly_score=score, surprise=surprise, explanation=reasons, key=self._rows.keys[i]
            )

    def response(self) -> schemas.Explanations:
        """Return the explanations of all points."""
        return schemas.Explanations(explanations=[self._found[i] for i in sorted(self._found)])


def key_blocks(handle: DetectorHandle, rows: KeyedRows, limits: Limits) -> list[dict[str, list[int]]]:
    """Return the positions of the rows of each key, in blocks of a few keys.

    Raises
    ------
    InvalidInputError
        If there are too many keys.
    """
    positions: dict[str, list[int]] = {}
    for i, key in enumerate(rows.keys):
        positions.setdefault(key, []).append(i)
    if len(positions) > limits.keys_per_read:
        raise InvalidInputError(
            f"The points have {len(positions)} keys, but at most {limits.keys_per_read} are allowed in a request that"
            " does not learn them."
        )
    items, n_keys = list(positions.items()), max(_COPIED_BYTES // handle.worker.summary.copy_bytes, 1)
    return [dict(items[i : i + n_keys]) for i in range(0, len(items), n_keys)]


def detectors_of(handle: DetectorHandle, keys: Iterable[str]) -> list[StreamDetector]:
    """Return copies of the detectors of keys; wait while a snapshot is being saved."""
    return [_detector_of(handle, key) for key in keys]


def _detector_of(handle: DetectorHandle, key: str) -> StreamDetector:
    """Return a copy of the detector of a key; raise NotFoundError if there is no such key."""
    try:
        return handle.worker.keys.fleet.detector(key)
    except InvalidInputError as error:
        raise NotFoundError(str(error)) from None


def _latest_rows(registry: Registry, handle: DetectorHandle, key: str) -> list[LearnedRow]:
    """Return the latest rows of a key; raise NotFoundError if there is no such key."""
    rows = handle.worker.keys.rows
    if key not in rows.summaries:
        raise NotFoundError(f"There is no key {key!r:.200}.")
    found: list[LearnedRow] = registry.writer.read(lambda store: rows.rows(store.latest_rows, handle.record.id, key))
    return found


def _values(row: LearnedRow) -> list[Any]:
    values: list[Any] = np.frombuffer(row.point, "<f8").tolist()
    return values
