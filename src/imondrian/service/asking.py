"""What can be asked of a detector without changing it: answered by a copy, so that nobody waits for what is learned."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.service import schemas
from imondrian.service.registry import Known, UnknownError
from imondrian.stream import StreamDetector

_USUAL = (1, 99)  # percentiles
FEW = 100  # points, worth less than a copy


def described(known: Known) -> schemas.Description:
    """Describe a detector."""
    live, figures = known.live, known.live.figures
    return schemas.Description(
        name=known.kept.name,
        created=known.kept.created,
        configuration=schemas.Configuration(**known.kept.configuration),
        n_seen=figures.n_seen,
        n_waiting=live.n_waiting,
        n_anomalies=live.counts.n_anomalies,
        threshold=figures.threshold,
        is_warm=figures.is_warm,
        n_bytes=figures.n_bytes,
        drifts=[schemas.Drift(**drift._asdict()) for drift in figures.drifts],
    )


def scored(known: Known, points: Array) -> schemas.Scores:
    """Score points as if each came next."""
    with _asked(known, len(points)) as detector:
        scores = detector.score(points).tolist()
        return schemas.Scores(anomaly_score=scores, threshold=detector.threshold, n_seen=detector.n_seen)


def explained(known: Known, points: Array) -> schemas.Explanations:
    """Divide the scores of points among the features, as if each came next."""
    names = known.kept.configuration["features"]
    with _asked(known, len(points)) as detector:
        usual = _usual(detector, len(names))
        parts = [np.array(list(detector.explain(point).values())) for point in points]
    explanations = [
        schemas.Explanation(anomaly_score=float(np.abs(part).sum()), explanation=_reasons(part, point, usual, names))
        for part, point in zip(parts, points, strict=True)
    ]
    return schemas.Explanations(explanations=explanations)


def history_of(known: Known, after: int, limit: int) -> schemas.History:
    """Give the latest rows and what was said of them."""
    rows = known.live.history.rows(after)[-limit:]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schemas.History.model_fields]
    return schemas.History(**dict(zip(schemas.History.model_fields, columns, strict=True)))


def explained_row(known: Known, number: int) -> schemas.ExplainedRow:
    """Explain a row that was learned, by the detector as it is now, but for that row."""
    names, size = known.kept.configuration["features"], known.kept.configuration["shingle"]
    rows = known.live.history.run(number, size)
    if not rows:
        raise UnknownError(f"Row {number} is not among the latest any more, or has not been seen.")
    seen, values = rows[-1], np.array([row.values for row in rows])
    mine = known.live.copies.own()
    with suppress(InvalidInputError):  # it may not be in the window
        mine.forest.forget(values.reshape(1, -1))
    reasons = _reasons(mine.explain_point(values), values[-1], _usual(mine, len(names)), names)
    return schemas.ExplainedRow(
        index=seen.number,
        time=seen.time,
        anomaly_score=seen.score,
        threshold=seen.threshold,
        is_anomaly=seen.is_anomaly,
        explanation=reasons,
    )


@contextmanager
def _asked(known: Known, n_points: int) -> Iterator[StreamDetector]:
    """Ask the copy, or for many points one of one's own, so that others need not wait meanwhile."""
    if n_points > FEW:
        yield known.live.copies.own()
    else:
        with known.live.copies.asking() as detector:
            yield detector


def _usual(detector: StreamDetector, n_features: int) -> Array:
    """Give for each feature between which values most of the window lies; without a point, zeros."""
    points = detector.forest.points()[:, -n_features:]
    return np.percentile(points, _USUAL, axis=0).T if len(points) else np.zeros((n_features, 2))


def _reasons(parts: Array, point: Array, usual: Array, names: list[str]) -> list[schemas.Reason]:
    """Write down the parts, those of a feature in all rows of a shingle together, the greatest first."""
    parts = parts.reshape(-1, len(names)).sum(axis=0)
    sizes = np.abs(parts)
    shares = sizes / max(sizes.sum(), np.finfo(float).tiny)
    return [
        schemas.Reason(
            feature=names[j],
            value=point[j],
            usual=(usual[j, 0], usual[j, 1]),
            part=parts[j],
            share=shares[j],
            side="high" if parts[j] > 0 else "low",
        )
        for j in np.argsort(-sizes, kind="stable")
    ]
