"""Explanations in words of the points of a stream detector; with a shingle, a point is several rows."""

from collections.abc import Mapping

import numpy as np

from imondrian.base.option_types import VIEWS
from imondrian.engine.jit import Array
from imondrian.models.explanations import Expectations, Reason, reasons_of
from imondrian.stream.detector import StreamDetector
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.series_explanations import series_parts

_MIN_SHARE = 0.05


def reasons_of_point(
    detector: StreamDetector,
    point: Array,
    rows: Array,
    names: list[str],
    n: int = 3,
    *,
    score: float | None = None,
    texts: Mapping[int, str] | None = None,
    min_share: float = _MIN_SHARE,
) -> list[Reason]:
    """Return the features, and with a shingle the rows, that have the largest parts in the score of a point.

    Parameters
    ----------
    detector : StreamDetector
        The detector. Its forest must not hold the point: otherwise the expected values would be those of the point.
    point : array of shape (n_values,)
        The point as the forest holds it; see `StreamDetector.next_point`.
    rows : array of shape (n_rows, n_features)
        The rows of the point, oldest first: codes in categorical columns, NaN for missing numbers. With the preset
        "series", the row from which the deviations in the point were computed.
    names : list of str
        Names of the features.
    n : int, default=3
        Maximum number of reasons.
    score : float, optional
        The score to divide; by default the score that the point would have if it came next.
    texts : mapping of int to str, optional
        The texts of the categories, by their indices in `rows.ravel()`. A category that is not listed is shown as its
        code.
    min_share : float, default=0.05
        Reasons with a smaller share of the score are left out, except for the first.

    Returns
    -------
    list of Reason

    Examples
    --------
    >>> detector = StreamDetector(1, shingle=4, window=512, seed=0)
    >>> wave = np.round(np.sin(np.arange(400) / 5.0), 2)
    >>> results = detector.process_many(wave[:398, None])
    >>> result = detector.process([5.0])  # a wrong value, followed by a right one
    >>> point = detector.next_point([wave[399]])
    >>> reason = reasons_of_point(detector, point, point[:, None], ["load"])[0]
    >>> reason.name, reason.value, reason.side
    ('load 1 row ago', 5.0, 'high')
    """
    layout = RowLayout.of(detector.parameters)
    parts = layout.features_of_parts(detector.explain_point(point)).reshape(layout.size, layout.n_features)
    if score is not None:
        parts = parts * (score / np.abs(parts).sum())
    if layout.has_views:
        return _series_reasons(detector, point, rows[-1], parts, names, n, min_share)
    has_points = detector.forest.n_points > 0
    expectations = Expectations(detector.forest, layout.size, layout.indicators) if has_points else None
    return reasons_of(parts, rows, names, n, expectations=expectations, point=point, texts=texts, min_share=min_share)


def _series_reasons(
    detector: StreamDetector, point: Array, row: Array, parts: Array, names: list[str], n: int, min_share: float
) -> list[Reason]:
    """Return the features of a time series with the largest parts in the score of a row."""
    if detector.forest.n_points == 0:
        return []
    score = np.abs(parts).sum()
    found = [
        Reason(
            names[part.feature],
            part.value,
            part.share,
            part.is_high,
            expected=(part.low, part.high),
            part=part.share * score * (1.0 if part.is_high else -1.0),
            view=VIEWS[part.view],
        )
        for part in series_parts(detector.forest, point, row, parts.ravel(), n)
    ]
    return [reason for i, reason in enumerate(found) if i == 0 or reason.share >= min_share]
