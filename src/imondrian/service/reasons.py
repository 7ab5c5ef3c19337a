"""Reasons for the score of a point: the part of each feature, in numbers and in words."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from imondrian.categories import category_text
from imondrian.engine.jit import Array
from imondrian.explanations import MISSING_TEXT, Frequency, Reason, UsualValues, reasons_of
from imondrian.forest import MondrianForest
from imondrian.row_layout import RowLayout
from imondrian.service import schemas
from imondrian.service.row_labels import Value
from imondrian.stream import StreamDetector


class PointExplainer:
    """Explains points of a detector, which must not change in the meantime.

    Parameters
    ----------
    detector : StreamDetector
        The detector; `learned_point` changes it.
    names : list of str
        The names of its features.
    """

    def __init__(self, detector: StreamDetector, names: list[str]) -> None:
        self._detector, self._names = detector, names
        self._columns = {name: j for j, name in enumerate(names)}
        self._layout = RowLayout.of(detector.parameters)

    def next_point(self, point: Array, values: Sequence[Value]) -> list[schemas.Reason]:
        """Explain a point as if it were the next one of the stream; `values` are those that were posted."""
        parts = np.array(list(self._detector.explain(point).values()))
        return self._reasons(parts, point, values)

    def learned_point(self, rows: Array, values: Sequence[Value]) -> list[schemas.Reason]:
        """Explain a point, consisting of one or more rows, without the point itself, if the window still holds it.

        If it does not, missing numbers are replaced as if the last row were the next one of the stream.
        """
        point = self._point_in_window(rows)
        if point is None:
            if np.isnan(rows).any() or self._layout.indicators:
                return self.next_point(rows[-1], values)
            point = np.asarray(rows).reshape(1, -1)
        else:
            self._detector.forest.forget(point)
        parts = self._layout.features_of_parts(self._detector.explain_point(point))
        return self._reasons(parts, rows[-1], values)

    def _point_in_window(self, rows: Array) -> Array | None:
        """Return the latest point of the window that these rows have become, or None if there is none.

        The window has other values instead of missing numbers, so only the values that were posted are compared.
        """
        points = self._detector.forest.points()
        posted = self._layout.features_of_points(points)
        is_same = (posted == rows.reshape(-1)) | np.isnan(rows.reshape(-1))
        found = np.flatnonzero(is_same.all(axis=1))
        return points[found[-1:]] if found.size else None

    def _reasons(self, parts: Array, point: Array, values: Sequence[Value]) -> list[schemas.Reason]:
        """Return the part of each feature in the score, summed over the rows of a shingle, largest first."""
        parts = parts.reshape(-1, len(self._names)).sum(axis=0)
        texts = {j: _text_of(values[j]) for j in self._layout.categorical}
        n, usual = len(self._names), self._usual
        reasons = reasons_of(parts, np.asarray(point), self._names, n, usual=usual, texts=texts, min_share=0.0)
        columns = [self._columns[reason.feature] for reason in reasons]
        return [_described(reason, parts[j], values[j]) for reason, j in zip(reasons, columns, strict=True)]

    @cached_property
    def _usual(self) -> UsualValues | None:
        """What is usual in the window; None if it is empty."""
        return _UsualInLastRow(self._detector.forest, self._layout) if self._detector.forest.n_points else None


class _UsualInLastRow(UsualValues):
    """What is usual for the last row of a point: features are counted from its first column in the forest."""

    def __init__(self, forest: MondrianForest, layout: RowLayout) -> None:
        super().__init__(forest)
        self._first = layout.n_values - layout.width

    def is_category(self, j: int) -> bool:
        return super().is_category(self._first + j)

    def frequency(self, j: int, code: float) -> Frequency:
        return super().frequency(self._first + j, code)

    def range(self, j: int) -> tuple[float, float]:
        return super().range(self._first + j)


def _text_of(value: Value) -> str:
    return MISSING_TEXT if value is None else category_text(value)


def _described(reason: Reason, part: float, value: Value) -> schemas.Reason:
    """Return a reason as it is sent."""
    frequency = None if reason.frequency is None else schemas.Frequency(**reason.frequency._asdict())
    return schemas.Reason(
        feature=reason.feature,
        value=value,
        usual=reason.usual,
        frequency=frequency,
        part=part,
        share=reason.share,
        side=reason.side or None,
        text=str(reason),
    )
