"""Explanations of single rows of a stream, from the state of the detector before they are learned."""

from typing import Any

from imondrian.cli.stream_words import reason_text
from imondrian.cli.watch.stream_features import StreamFeatures
from imondrian.stream.detector import StreamDetector
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.stream_explanations import reasons_of_point


class RowExplanations:
    """Explains rows that will be labelled anomalies; keeps the rows before them, as many as a shingle needs."""

    def __init__(self) -> None:
        self._earlier: list[list[Any]] = []

    def explain_next(
        self, detector: StreamDetector, features: StreamFeatures, values: list[Any], time: float | None
    ) -> str | None:
        """Return the explanation of the next row; None if it will not be labelled an anomaly.

        `time` is in seconds; None: the detector does not use times.
        """
        n_earlier = detector.parameters["shingle"] - 1
        explanation = _explanation(detector, features, values, time, self._earlier)
        self._earlier = [*self._earlier, values][-n_earlier:] if n_earlier else []
        return explanation


def _explanation(
    detector: StreamDetector,
    features: StreamFeatures,
    values: list[Any],
    time: float | None,
    earlier: list[list[Any]],
) -> str | None:
    """Return the explanation of a row that will be labelled an anomaly, from the state before it is learned.

    `earlier` are the values of the rows before it in the same point, as far as they are known.
    """
    if not detector.is_warm:
        return None
    point = features.points([values])
    if not detector.score(point, None if time is None else [time])[0] > detector.threshold_score:
        return None
    completed, layout = detector.next_point(point[0], time), RowLayout.of(detector.parameters)
    rows = layout.rows_of_point(completed)
    rows[-1] = point[0]
    texts = _category_texts([*earlier, values], features, layout)
    reasons = reasons_of_point(detector, completed, rows, features.names, texts=texts)
    return "; ".join(reason_text(reason, features.names) for reason in reasons)


def _category_texts(rows: list[list[Any]], features: StreamFeatures, layout: RowLayout) -> dict[int, str]:
    """Return the categories in a point as text, by the index of the value in the point.

    `rows` are the last rows of the point; the categories of the rows before them are not known, and are "".
    """
    n, first = layout.n_features, layout.size - len(rows)
    texts = dict.fromkeys((i * n + j for i in range(first) for j in features.categorical), "")
    for i, values in enumerate(rows, first):
        texts |= {i * n + j: text for j, text in features.texts(values).items()}
    return texts
