"""Reasons for the score of a point: the part of each feature, in numbers and in words."""

from collections.abc import Callable, Sequence

import numpy as np

from imondrian.base.categories import category_text
from imondrian.engine.jit import Array
from imondrian.models.explanations import MISSING_TEXT, Reason
from imondrian.service.changes.row_labels import Value
from imondrian.service.http import schemas
from imondrian.stream.detector import StreamDetector
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.series_views import deviations
from imondrian.stream.stream_explanations import reasons_of_point

_VALUES_AT_ONCE = 2**18  # of points of the window that are compared: 2 MB


class PointExplainer:
    """Explains points of a detector; nothing else may change the detector while the explainer is used.

    Parameters
    ----------
    detector : StreamDetector
        The detector; `learned_point` and `learned_row` make it forget the point that they explain.
    names : list of str
        The names of its features.
    """

    def __init__(self, detector: StreamDetector, names: list[str]) -> None:
        self._detector, self._names = detector, names
        self._layout = RowLayout.of(detector.parameters)

    def next_point(self, row: Array, values: Sequence[Value], time: float | None) -> list[schemas.Reason]:
        """Explain a row as if it were the next row of the stream; `values` are its values as posted.

        The list is empty while there are too few rows for a shingle. The categories in earlier rows of a shingle are
        not known. With the preset "series", `time` is the time of the row in seconds; NaN or None if it is not known.
        """
        point = self._detector.next_point(row, time)
        if point.size == 0:
            return []
        if self._layout.has_views:
            return self._reasons(point, row[None], [values])
        rows = self._layout.rows_of_point(point)
        rows[-1] = row
        unknown: list[Sequence[Value]] = [[""] * len(values)] * (len(rows) - 1)
        return self._reasons(point, rows, [*unknown, values])

    def learned_point(self, rows: Array, values: Sequence[Sequence[Value]], score: float) -> list[schemas.Reason]:
        """Divide the score that a learned point had when it arrived; `rows` are the one or more rows of the point.

        The score is divided in the proportions that the current forest finds without the point. If the window no longer
        holds the point, missing numbers are replaced as if the rows were the next rows of the stream.
        """
        point = self._point_in_window(rows)
        if point is None:
            point = self._detector.point_of_rows(rows)
        else:
            self._detector.forest.forget(point[None])
        return self._reasons(point, np.asarray(rows), values, score)

    def learned_row(self, row: Array, values: Sequence[Value], usual: Array, score: float) -> list[schemas.Reason]:
        """Like `learned_point` for a row of a series; `usual` is what was usual when the row arrived."""
        point = deviations(row, usual)
        if self._latest_point(lambda points: (points == point).all(axis=1)) is not None:
            self._detector.forest.forget(point[None])
        return self._reasons(point, row[None], [values], score)

    def _point_in_window(self, rows: Array) -> Array | None:
        """Return the latest point of the window that was made from these rows, or None if there is no such point.

        In the window, missing numbers have been replaced, so only the values that were posted are compared.
        """
        posted = rows.reshape(-1)
        is_missing = np.isnan(posted)
        return self._latest_point(
            lambda points: ((self._layout.features_of_points(points) == posted) | is_missing).all(axis=1)
        )

    def _latest_point(self, condition: Callable[[Array], Array]) -> Array | None:
        """Return the latest point of the window for which a condition is true, or None if there is none.

        The condition is checked for many points at once, but not for all: a copy of the window could take as much
        memory as the detector.
        """
        forest = self._detector.forest
        first, end = max(forest.n_shown - self._detector.parameters["window"], 0), forest.n_shown
        n_at_once = max(_VALUES_AT_ONCE // (forest.n_features or 1), 1)
        while end > first:
            points = forest.numbered_points(max(end - n_at_once, first), end)
            found = np.flatnonzero(condition(points))
            if found.size:
                latest: Array = points[found[-1]]
                return latest
            end -= n_at_once
        return None

    def _reasons(
        self, point: Array, rows: Array, values: Sequence[Sequence[Value]], score: float | None = None
    ) -> list[schemas.Reason]:
        """Return all parts of the score, largest first; their absolute values sum to the score."""
        n_features = len(self._names)
        texts = {i * n_features + j: _text_of(row[j]) for i, row in enumerate(values) for j in self._layout.categorical}
        reasons = reasons_of_point(
            self._detector, point, rows, self._names, rows.size, score=score, texts=texts, min_share=0.0
        )
        return [_described(reason, self._value_of(reason, values)) for reason in reasons]

    def _value_of(self, reason: Reason, values: Sequence[Sequence[Value]]) -> Value:
        """Return a value as posted; in earlier rows of a shingle, numbers as stored and None for unknown categories."""
        if reason.rows_ago == (0, 0):
            return values[-1][self._names.index(reason.feature)]
        if reason.text is not None:
            return reason.text or None
        return None if np.isnan(reason.value) else reason.value


def _text_of(value: Value) -> str:
    return MISSING_TEXT if value is None else category_text(value)


def _described(reason: Reason, value: Value) -> schemas.Reason:
    """Return a reason as it is sent."""
    frequency = None if reason.frequency is None else schemas.Frequency(**reason.frequency._asdict())
    return schemas.Reason(
        feature=reason.feature,
        rows_ago=reason.rows_ago,
        value=value,
        expected=reason.expected,
        frequency=frequency,
        view=reason.view,
        part=reason.part,
        share=reason.share,
        side=reason.side or None,
        text=str(reason),
    )
