"""Answers to read requests about a detector with a key: its keys, their latest rows, scores and explanations."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.keyed_rows import KeyedRows, LearnedRow
from imondrian.service.detectors.registry import DetectorHandle, Registry
from imondrian.service.errors import NotFoundError
from imondrian.service.http import schemas
from imondrian.service.http.queries import number_or_none
from imondrian.service.http.reasons import PointExplainer
from imondrian.service.limits import Limits
from imondrian.service.storage.latest_rows import KeySummary
from imondrian.stream.detector import StreamDetector

Order = Literal["surprise", "name", "time"]
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
    """Return the key of a request; raise InvalidInputError if it is missing, or if the detector has no keys."""
    if key is not None:
        handle.worker.keys  # noqa: B018 (raises an error)
    elif handle.worker.is_keyed:
        raise InvalidInputError(
            f"The detector {handle.record.name!r} has one detector per key: the query parameter `key` is needed."
        )
    return key


def check_number_of_keys(handle: DetectorHandle, rows: KeyedRows, limits: Limits) -> None:
    """Raise InvalidInputError if rows have too many new keys."""
    known = handle.worker.keys.rows.summaries
    n_new = sum(key not in known for key in set(rows.keys))
    if n_new and len(known) + n_new > limits.keys:
        raise InvalidInputError(
            f"The detector has {len(known)} keys, and the request has {n_new} others, but at most {limits.keys} keys"
            " are allowed."
        )


def keys_of(handle: DetectorHandle, search: str, order: Order, after: int, limit: int) -> schemas.Keys:
    """Return keys that contain a text, whatever the case of the letters."""
    view, text = handle.worker.keys, search.casefold()
    known = list(view.rows.summaries.items())
    found = [item for item in known if text in item[0].casefold()] if text else known
    found.sort(key=_ORDERS[order])
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
            for key, summary in found[after:end]
        ],
        n_keys=len(known),
        n_found=len(found),
        next=end if end < len(found) else None,
    )


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
        incident=[number_or_none(row.incident) for row in rows],
        expected_low=None,
        expected_high=None,
        key=key,
        is_borrowed=[row.is_borrowed for row in rows],
    )


def explanation_of_keyed_row(registry: Registry, handle: DetectorHandle, key: str, number: int) -> schemas.ExplainedRow:
    """Return a learned row of a key, explained by the current detector of the key without this row in its window."""
    rows = [row for row in _latest_rows(registry, handle, key) if row.number == number]
    if not rows:
        raise NotFoundError(f"Row {number} of the key is no longer among its latest rows, or has not been seen.")
    row = rows[0]
    explainer = PointExplainer(_detector_of(handle, key), handle.record.configuration["features"])
    return schemas.ExplainedRow(
        index=row.number,
        time=row.time,
        own_time=row.own_time,
        values=_values(row),
        anomaly_score=row.score,
        surprise=row.surprise,
        threshold=row.threshold,
        is_anomaly=row.is_anomaly,
        incident=number_or_none(row.incident),
        explanation=explainer.learned_point(np.array([_values(row)]), [_values(row)], row.score),
        key=key,
        is_borrowed=row.is_borrowed,
    )


def keyed_scores_of(handle: DetectorHandle, rows: KeyedRows, limits: Limits) -> schemas.KeyedScores:
    """Return the scores of points by the detectors of their keys, each as if it were the next point of its key."""
    n_rows = len(rows.keys)
    columns = {name: [0.0] * n_rows for name in ("anomaly_score", "surprise", "threshold")}
    n_seen = [0] * n_rows
    for detector, positions in _detectors_of(handle, rows, limits):
        scores = detector.score(rows.points[positions])
        figures = zip(positions, scores.tolist(), detector.surprise(scores).tolist(), strict=True)
        for i, score, surprise in figures:
            columns["anomaly_score"][i], columns["surprise"][i] = score, surprise
            columns["threshold"][i], n_seen[i] = detector.threshold_score, detector.n_seen
    return schemas.KeyedScores(key=rows.keys, **columns, n_seen=n_seen)


def keyed_explanations_of(handle: DetectorHandle, rows: KeyedRows, limits: Limits) -> schemas.Explanations:
    """Return the scores of points divided among the features, each as if it were the next point of its key."""
    found = dict[int, schemas.KeyedExplanation]()
    for detector, positions in _detectors_of(handle, rows, limits):
        explainer = PointExplainer(detector, handle.record.configuration["features"])
        scores = detector.score(rows.points[positions])
        for i, score, surprise in zip(positions, scores.tolist(), detector.surprise(scores).tolist(), strict=True):
            reasons = explainer.next_point(rows.points[i], rows.points[i].tolist(), None)
            found[i] = schemas.KeyedExplanation(
                anomaly_score=score, surprise=surprise, explanation=reasons, key=rows.keys[i]
            )
    return schemas.Explanations(explanations=[found[i] for i in sorted(found)])


def _detectors_of(
    handle: DetectorHandle, rows: KeyedRows, limits: Limits
) -> Iterator[tuple[StreamDetector, list[int]]]:
    """Yield a copy of the detector of each key, one at a time, with the positions of the rows of the key."""
    positions: dict[str, list[int]] = {}
    for i, key in enumerate(rows.keys):
        positions.setdefault(key, []).append(i)
    if len(positions) > limits.keys_per_read:
        raise InvalidInputError(
            f"The points have {len(positions)} keys, but at most {limits.keys_per_read} are allowed, unless they are"
            " learned."
        )
    for key, found in positions.items():
        yield _detector_of(handle, key), found


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
    found: list[LearnedRow] = registry.writer.write(lambda store: rows.rows(store, handle.record.id, key))
    return found


def _values(row: LearnedRow) -> list[Any]:
    values: list[Any] = np.frombuffer(row.point, "<f8").tolist()
    return values
