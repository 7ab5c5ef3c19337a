"""The River detector: accepts dictionaries or data frames; features may appear and disappear."""

import copy
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from river.base import AnomalyDetector
from river.utils.dataframe import into_frame, to_native_series

from imondrian.defaults import MAX_SAMPLES, N_TREES, PRESET, resolved
from imondrian.engine.jit import Array
from imondrian.forest import MondrianForest
from imondrian.inputs import as_column, as_number, as_point, as_points
from imondrian.locking import Locks, read_locked, write_locked
from imondrian.option_types import Kind, KindOrPreset, PresetName, ScaleOrPreset
from imondrian.scores import score_kind

# as in other River detectors; `QuantileFilter` would otherwise learn a high quantile from the first points
_SCORE_BEFORE_LEARNING = 0.0


class IsolationMondrianForest(AnomalyDetector):
    """Isolation Mondrian forest on a stream.

    Each tree holds a uniform sample, of bounded size, of all points learned; it always has the distribution of a tree
    built on that sample at once. Scores lie in (0, 1) and are high for anomalies; the score is 0 until two different
    points have been learned. A feature that is missing from a point counts as 0; so does a new feature in the points
    learned before it appeared. A model may be used from several threads.

    Parameters
    ----------
    n_trees
        Number of trees.
    max_samples
        Maximum number of points in a tree; `None` for all points, without a bound on memory.
    window
        Number of latest points to keep; older points are forgotten. Each tree holds about `max_samples` points of the
        window. `None` for a sample of all points learned.
    preset
        `"practice"`: `kind="size"` and `scale="std"`. `"paper"`: `kind="depth"` and `scale=None`.
    kind
        Which score to use: `"depth"` (the paper), `"expected"`, `"size"`, or `"preset"`.
    scale
        Weights of the features: `None` (equal, the paper), `"std"` (one over the standard deviation), one weight per
        feature, or `"preset"`.
    seed
        Seed of the trees.

    Examples
    --------
    >>> import random
    >>> from imondrian.river import IsolationMondrianForest
    >>> rng, model = random.Random(0), IsolationMondrianForest(seed=42)
    >>> for _ in range(500):
    ...     model.learn_one({"x": rng.gauss(0, 1), "y": rng.gauss(0, 1)})
    >>> model.score_one({"x": 0.0, "y": 0.0}) < 0.5 < model.score_one({"x": 0.0, "y": 9.0})
    True
    >>> parts = model.explain_one({"x": 0.0, "y": 9.0})
    >>> max(parts, key=lambda name: abs(parts[name]))
    'y'
    """

    def __init__(
        self,
        n_trees: int = N_TREES,
        max_samples: int | None = MAX_SAMPLES,
        window: int | None = None,
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        seed: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.max_samples = max_samples
        self.window = window
        self.preset = preset
        self.kind = kind
        self.scale = scale
        self.seed = seed
        self._columns: dict[Hashable, int] = {}
        self._learning: _Learning | None = None  # the call that is learning, if it has not finished
        if seed is None:
            seed = int(np.random.default_rng().integers(2**63))
        self._kind: Kind = resolved(kind, "kind", preset)
        score_kind(self._kind)  # raises if it is unknown
        weights = resolved(scale, "scale", preset)
        self._forest = MondrianForest(n_trees, max_samples=max_samples, window=window, scale=weights, seed=seed)

    @property
    def _locks(self) -> Locks:
        return self._forest._locks  # noqa: SLF001 (model and forest share one lock)

    def _is_settled(self) -> bool:
        return self._learning is None and self._forest._is_settled()  # noqa: SLF001

    def _settle(self) -> None:
        """Complete an interrupted call: store its columns if the forest has learned one of its points."""
        self._forest._settle()  # noqa: SLF001
        learning = self._learning
        if learning is not None:
            is_learned = self._forest.n_shown > learning.n_before
            self._columns, self._learning = learning.columns if is_learned else self._columns, None

    @read_locked
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_forest": copy.deepcopy(self._forest)}  # the lock keeps columns and forest consistent

    @write_locked
    def learn_one(self, x: Mapping[Hashable, float]) -> None:
        """Learn one point."""
        columns = self._columns_with(x)
        self._learn(as_point(_row(x, columns, self._width(columns)), None), columns)

    @write_locked
    def learn_many(self, X: Any) -> None:
        """Learn the rows of a data frame (pandas, polars, ...); like calling `learn_one` for each."""
        frame = into_frame(X)
        columns = self._columns_with(frame.columns)
        self._learn(as_points(_matrix(frame, columns, self._width(columns)), None), columns)

    @read_locked
    def score_one(self, x: Mapping[Hashable, float]) -> float:
        """Return the score of a point in (0, 1), high for anomalies; 0 until two different points have been learned.

        Features that have not been learned are ignored.
        """
        if not self._forest.can_score:
            return _SCORE_BEFORE_LEARNING
        return self._forest.score_one(_row(x, self._columns, self._width(self._columns)), self._kind)

    @read_locked
    def score_many(self, X: Any) -> Any:
        """Return the scores of the rows of a data frame, like `score_one`, as a series of the same library."""
        frame = into_frame(X)
        if not self._forest.can_score or len(frame) == 0:
            scores = np.full(len(frame), _SCORE_BEFORE_LEARNING)
        else:
            scores = self._forest.score(_matrix(frame, self._columns, self._width(self._columns)), self._kind)
        return to_native_series(scores, name="score", like=frame)

    @read_locked
    def explain_one(self, x: Mapping[Hashable, float]) -> dict[Hashable, float]:
        """Divide the score of a point among the learned features.

        A part is positive if the value is unusually high, negative if unusually low; absolute values sum to the score.
        Until two different points have been learned, every feature of x has the part 0.
        """
        if not self._forest.can_score:
            return dict.fromkeys(x, _SCORE_BEFORE_LEARNING)
        parts = self._forest.explain(_row(x, self._columns, self._width(self._columns))[None], self._kind)[0]
        return {name: float(parts[j]) for name, j in self._columns.items()}

    def _columns_with(self, others: Iterable[Hashable]) -> dict[Hashable, int]:
        """Return the column of each feature; new ones come last, sorted: the order of `others` has no effect."""
        new = sorted(
            (name for name in others if name not in self._columns), key=lambda name: (str(type(name)), str(name))
        )
        return self._columns | {name: len(self._columns) + i for i, name in enumerate(new)}

    def _learn(self, points: Array, columns: dict[Hashable, int]) -> None:
        """Learn points, then store their columns; `_settle` stores them if this call is interrupted."""
        self._learning = _Learning(columns, self._forest.n_shown)
        if self._forest.n_features is not None:
            self._forest.widen(points.shape[1])
        self._forest.extend(points)
        self._columns, self._learning = columns, None

    def _width(self, columns: Mapping[Hashable, int]) -> int:
        """Return the number of values in a row; an interruption may leave unnamed features, whose values are all 0."""
        return max(len(columns), self._forest.n_features or 0)


class _Learning(NamedTuple):
    """A call that is learning points."""

    columns: dict[Hashable, int]  # column of each feature, including those of the call
    n_before: int  # number of points that the forest was shown before the call


def _row(x: Mapping[Hashable, float], columns: Mapping[Hashable, int], width: int) -> Array:
    """Return the values in the order of the features; 0 for missing features."""
    row = np.zeros(width)
    for name, value in x.items():
        if name in columns:
            row[columns[name]] = as_number(value, name)
    return row


def _matrix(frame: Any, columns: Mapping[Hashable, int], width: int) -> Array:
    """Return the columns in the order of the features; 0 for missing features."""
    matrix = np.zeros((len(frame), width))
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        if name in columns:
            matrix[:, columns[name]] = as_column(column.to_numpy(), name)
    return matrix
