"""The River detector: dictionaries in, one at a time or in frames; features may come and go."""

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

_BEFORE_LEARNING = 0.0  # no anomaly, as River's detectors say at first: its filters compare with the scores so far


class IsolationMondrianForest(AnomalyDetector):
    """Isolation Mondrian forest on a stream.

    Each tree holds a uniform sample of bounded size of all points learned, and is at all times distributed as if it had
    been built on it at once. Scores lie in (0, 1), high is odd; the score is 0 until two different points were
    learned. A feature that a point does not have counts as 0, and so does a new feature in the points learned before
    it came. A model may be used from several threads.

    Parameters
    ----------
    n_trees
        Number of trees.
    max_samples
        How many points a tree holds; `None` for all of them, which grows for ever.
    window
        Hold only the latest points, so many of them, and forget those that leave; of the window a tree holds about
        `max_samples` points. `None` for a sample of all points learned.
    preset
        `"practice"`: the kind `"size"` with the scale `"std"`. `"paper"`: the kind `"depth"` with the scale `None`.
    kind
        Which score, if not that of the preset: `"depth"` (the paper), `"expected"` or `"size"`.
    scale
        If not that of the preset: `None` (the paper), or `"std"`: every feature is weighed by one over its standard
        deviation.
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
        self._names: dict[Hashable, int] = {}
        self._learning: _Learning | None = None  # begun, and not finished
        if seed is None:
            seed = int(np.random.default_rng().integers(2**63))
        self._kind: Kind = resolved(kind, "kind", preset)
        score_kind(self._kind)  # for its check
        weights = resolved(scale, "scale", preset)
        self._forest = MondrianForest(n_trees, max_samples=max_samples, window=window, scale=weights, seed=seed)

    @property
    def _locks(self) -> Locks:
        return self._forest._locks  # noqa: SLF001 (one lock for both)

    def _is_settled(self) -> bool:
        return self._learning is None and self._forest._is_settled()  # noqa: SLF001

    def _settle(self) -> None:
        """Finish what an interrupted call has left: its names count if the forest has been shown a point of it."""
        self._forest._settle()  # noqa: SLF001
        learning = self._learning
        if learning is not None:
            is_learned = self._forest.n_shown > learning.n_before
            self._names, self._learning = learning.names if is_learned else self._names, None

    @read_locked
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_forest": copy.deepcopy(self._forest)}  # names and forest of one moment

    @write_locked
    def learn_one(self, x: Mapping[Hashable, float]) -> None:
        """Learn one point."""
        names = self._names_with(x)
        self._learn(as_point(_row(x, names, self._width(names)), None), names)

    @write_locked
    def learn_many(self, X: Any) -> None:
        """Learn the rows of a data frame (pandas, polars, ...), as `learn_one` would one after the other."""
        frame = into_frame(X)
        names = self._names_with(frame.columns)
        self._learn(as_points(_matrix(frame, names, self._width(names)), None), names)

    @read_locked
    def score_one(self, x: Mapping[Hashable, float]) -> float:
        """Score one point in (0, 1), high is odd; 0 until two different points were learned. Ignores new features."""
        if not self._forest.can_score:
            return _BEFORE_LEARNING
        return self._forest.score_one(_row(x, self._names, self._width(self._names)), self._kind)

    @read_locked
    def score_many(self, X: Any) -> Any:
        """Score the rows of a data frame as `score_one` would; give a series of the same kind."""
        frame = into_frame(X)
        if not self._forest.can_score or len(frame) == 0:
            scores = np.full(len(frame), _BEFORE_LEARNING)
        else:
            scores = self._forest.score(_matrix(frame, self._names, self._width(self._names)), self._kind)
        return to_native_series(scores, name="score", like=frame)

    @read_locked
    def explain_one(self, x: Mapping[Hashable, float]) -> dict[Hashable, float]:
        """Divide the score among the features learned: positive too high, negative too low; sizes sum to the score."""
        if not self._forest.can_score:
            return dict.fromkeys(x, _BEFORE_LEARNING)
        parts = self._forest.explain(_row(x, self._names, self._width(self._names))[None], self._kind)[0]
        return {name: float(parts[place]) for name, place in self._names.items()}

    def _names_with(self, others: Iterable[Hashable]) -> dict[Hashable, int]:
        """Give the place of each feature; new ones come last, in an order that does not depend on that of `others`."""
        new = sorted(
            (name for name in others if name not in self._names), key=lambda name: (str(type(name)), str(name))
        )
        return self._names | {name: len(self._names) + i for i, name in enumerate(new)}

    def _learn(self, points: Array, names: dict[Hashable, int]) -> None:
        """Learn points, and then their names; `_settle` does the latter if the former is interrupted."""
        self._learning = _Learning(names, self._forest.n_shown)
        if self._forest.n_features is not None:
            self._forest.widen(points.shape[1])
        self._forest.extend(points)
        self._names, self._learning = names, None

    def _width(self, names: Mapping[Hashable, int]) -> int:
        """Return how many values a point has; after an interruption there may be features without a name, all 0."""
        return max(len(names), self._forest.n_features or 0)


class _Learning(NamedTuple):
    """Points that are being learned."""

    names: dict[Hashable, int]
    n_before: int  # points that the forest was shown before


def _row(x: Mapping[Hashable, float], names: Mapping[Hashable, int], width: int) -> Array:
    """Put the values into their places, 0 where there is none."""
    row = np.zeros(width)
    for name, value in x.items():
        if name in names:
            row[names[name]] = as_number(value, name)
    return row


def _matrix(frame: Any, names: Mapping[Hashable, int], width: int) -> Array:
    """Put the columns into their places, 0 where there is none."""
    matrix = np.zeros((len(frame), width))
    for name, column in zip(frame.columns, frame.iter_columns(), strict=True):
        if name in names:
            matrix[:, names[name]] = as_column(column.to_numpy(), name)
    return matrix
