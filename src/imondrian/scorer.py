"""Scoring with any model: a fitted estimator, a forest or a detector."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.fitted import Fitted
from imondrian.forest import MondrianForest
from imondrian.model_files import load_plain
from imondrian.option_types import Kind
from imondrian.stream import StreamDetector
from imondrian.tables.missing import medians_of

_ROWS_AT_ONCE = 20_000


class Scorer(NamedTuple):
    """All that it takes to score rows, label them, and say why."""

    forest: MondrianForest
    kind: Kind
    threshold: float
    rule: Any  # what the threshold was made by: "kmeans", "auto" or a share
    features: list[str] | None  # None: as many as the forest has, in their order

    def scores(self, points: Array, progress: Callable[[float], None] = lambda _share: None) -> Array:
        """Score points; those with a missing value get NaN."""
        scores = np.full(len(points), np.nan)
        for rows in _blocks(len(points)):
            usable = ~np.isnan(points[rows]).any(axis=1)
            if usable.any():
                scores[rows][usable] = self.forest.score(points[rows][usable], self.kind)
            progress(rows.stop / len(points))
        return scores

    def parts(self, points: Array, progress: Callable[[float], None] = lambda _share: None) -> Array:
        """Divide the scores of points among the features."""
        parts = np.empty(points.shape)
        for rows in _blocks(len(points)):
            parts[rows] = self.forest.explain(points[rows], self.kind)
            progress(rows.stop / len(points))
        return parts

    def medians(self) -> Array:
        """Give the medians of the points that the model holds."""
        return medians_of(self.forest.points())


def scorer_of(model: MondrianForest | StreamDetector | Fitted, name: str) -> Scorer:
    """Score with a model of any kind."""
    if isinstance(model, MondrianForest):
        return Scorer(model, "depth", 0.5, "auto", None)
    if isinstance(model, Fitted):
        parameters, threshold = model.parameters, model.settled().threshold or 0.0
        return Scorer(model.forest, parameters["kind"], threshold, parameters["contamination"], model.feature_names)
    parameters = model.parameters
    if parameters["shingle"] > 1:
        raise InvalidInputError(f"{name}: its points are {parameters['shingle']} rows each; a row alone has no score.")
    names = None if model.feature_names is None else list(map(str, model.feature_names))
    return Scorer(model.forest, model.kind, model.threshold, parameters["threshold"], names)


def loaded(path: str) -> MondrianForest | StreamDetector | Fitted:
    """Load a model file; that there is none is an error in one line."""
    try:
        return load_plain(path)
    except FileNotFoundError:
        raise InvalidInputError(f"{path}: there is no such file.") from None
    except IsADirectoryError:
        raise InvalidInputError(f"{path} is a folder, not a file.") from None


def _blocks(n_rows: int) -> Iterator[slice]:
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        yield slice(first, min(first + _ROWS_AT_ONCE, n_rows))
