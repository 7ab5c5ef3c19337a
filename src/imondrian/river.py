"""The River detector: accepts dictionaries or data frames; features may appear and disappear."""

import copy
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from river.base import AnomalyDetector
from river.utils.dataframe import into_frame, to_native_series

from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.base.categories import MISSING_CODE, category_code, is_missing
from imondrian.base.defaults import MAX_SAMPLES, N_TREES, PRESET, resolved
from imondrian.base.locking import Locks, read_locked, write_locked
from imondrian.base.option_types import Kind, KindOrPreset, PresetName, ScaleOrPreset
from imondrian.engine.jit import Array
from imondrian.forest.inputs import as_number, as_points_with_gaps
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.scores import score_kind
from imondrian.models.fitted_model import distribution_of_held_points, medians_of_held_points
from imondrian.rows.missing_values import have_values
from imondrian.rows.mixed_tables import codes_of, first_value, is_category, numbers_of

# as in other River detectors; `QuantileFilter` would otherwise learn a high quantile from the first points
_SCORE_BEFORE_LEARNING = 0.0
_UPDATES_PER_WINDOW = 8


class IsolationMondrianForest(AnomalyDetector):
    """Isolation Mondrian forest on a stream.

    Each tree holds a uniform sample, of bounded size, of all points learned. The tree always has the distribution of a
    tree that was built on this sample at once. Scores lie in (0, 1) and are high for anomalies; the score is 0 until
    two different points have been learned. A model may be used from several threads.

    A feature is a category if its first value is text or a boolean, otherwise a number. None, NaN and absent keys are
    missing values. A missing category is a category of its own. A missing number is replaced by the median of the
    values that the forest holds, which is updated when the number of points learned has grown by an eighth (with a full
    window: after every eighth of the window). In the points learned before a feature appeared, a numeric feature counts
    as 0, and a category as missing. A point without any value is not learned, and its score is 0.

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
        self._medians = _Medians(np.empty(0), 0)
        self._distribution: _Distribution | None = None
        self._learning: dict[Hashable, int] | None = None  # the columns of the call that is learning
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
        """Complete an interrupted or failed call: store its columns if the forest already has them.

        If no point has been learned yet, start again with a new forest, which has neither columns nor categories.
        """
        self._forest._settle()  # noqa: SLF001
        learning = self._learning
        if learning is None:
            return
        if self._forest.n_shown == 0:
            self._forest = self._empty_forest(())
        elif self._forest.n_features == len(learning):
            self._columns = learning
        self._learning = None

    @read_locked
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_forest": copy.deepcopy(self._forest)}  # the lock keeps columns and forest consistent

    @write_locked
    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn one point; missing features that have never had a value are ignored."""
        is_categorical = {name: is_category(value) for name, value in x.items() if not is_missing(value)}
        columns, categorical = self._with_features(self._columns, self._categorical, is_categorical)
        self._learn([_Rows(columns, categorical, _row(x, columns, categorical)[None])])

    @write_locked
    def learn_many(self, X: Any) -> None:
        """Learn the rows of a data frame (pandas, polars, ...); like calling `learn_one` for each."""
        frame, n_rows = _columns_of(X), len(X)
        starts: dict[int, dict[Hashable, bool]] = {0: {}}  # the new features of a row; True for a category
        for name, column in frame.items():
            first = None if name in self._columns else first_value(column)
            if first is not None:
                starts.setdefault(first[0], {})[name] = is_category(first[1])
        columns, categorical, parts = self._columns, self._categorical, []
        for start, end in pairwise([*sorted(starts), n_rows]):
            columns, categorical = self._with_features(columns, categorical, starts[start])
            part = {name: _between(column, start, end) for name, column in frame.items()}
            parts.append(_Rows(columns, categorical, _matrix(part, end - start, columns, categorical)))
        self._learn(parts)

    @read_locked
    def score_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return the score of a point in (0, 1), high for anomalies; 0 until two different points have been learned.

        Features that have not been learned are ignored.
        """
        if not self._forest.can_score:
            return _SCORE_BEFORE_LEARNING
        row = _row(x, self._columns, self._categorical)[None]
        return float(self._scores(row)[0])

    @read_locked
    def score_many(self, X: Any) -> Any:
        """Return the scores of the rows of a data frame, like `score_one`, as a series of the same library."""
        frame = into_frame(X)
        if not self._forest.can_score or len(frame) == 0:
            scores = np.full(len(frame), _SCORE_BEFORE_LEARNING)
        else:
            scores = self._scores(_matrix(_columns_of(X), len(frame), self._columns, self._categorical))
        return to_native_series(scores, name="score", like=frame)

    @read_locked
    def surprise_one(self, x: Mapping[Hashable, Any]) -> float:
        """Return -log10 of the probability that an ordinary point has a score as high as that of x.

        3 means one in a thousand. The ordinary points are those that the forest holds; x is not learned. Their scores
        are computed by the first call, and again when new features have appeared or the number of points learned has
        grown by an eighth (with a full window: after every eighth of the window). This takes about a tenth of a second.
        The surprise is unreliable before about a thousand points have been learned. It is 0 until two different points
        have been learned.

        Examples
        --------
        >>> import random
        >>> from imondrian.river import IsolationMondrianForest
        >>> rng, model = random.Random(0), IsolationMondrianForest(seed=42)
        >>> for _ in range(2_000):
        ...     model.learn_one({"x": rng.gauss(0, 1)})
        >>> model.surprise_one({"x": 0.0}) < 1 < 3 < model.surprise_one({"x": 9.0})
        True
        """
        score = self.score_one(x)
        return float(self._find_distribution().surprise([score])[0]) if score > _SCORE_BEFORE_LEARNING else 0.0

    @read_locked
    def explain_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Divide the score of a point among the learned features.

        A part is positive if the value is unusually high, negative if unusually low; that of a category is never
        negative. The absolute values sum to the score. Until two different points have been learned, every feature of x
        has the part 0.
        """
        if not self._forest.can_score:
            return dict.fromkeys(x, _SCORE_BEFORE_LEARNING)
        row = _row(x, self._columns, self._categorical)[None]
        if not have_values(row, self._categorical)[0]:
            return dict.fromkeys(self._columns, _SCORE_BEFORE_LEARNING)
        parts = self._forest.explain(self._medians.filled(row), self._kind)[0]
        return {name: float(parts[j]) for name, j in self._columns.items()}

    # -- internal ---------------------------------------------------------------------------------------------------

    @property
    def _categorical(self) -> tuple[int, ...]:
        """The columns of the categorical features."""
        return self._forest.categorical

    def _scores(self, rows: Array) -> Array:
        """Return the scores of rows with gaps; 0 for rows without any value."""
        scores, has_value = np.full(len(rows), _SCORE_BEFORE_LEARNING), have_values(rows, self._categorical)
        if len(rows) == 1 and has_value[0]:
            scores[0] = self._forest.score_one(self._medians.filled(rows)[0], self._kind)
        elif has_value.any():
            scores[has_value] = self._forest.score(self._medians.filled(rows[has_value]), self._kind)
        return scores

    def _find_distribution(self) -> ScoreDistribution:
        """Return the distribution of the scores of the points that the forest holds, and store it for later calls."""
        n_shown, n_columns, stored = self._forest.n_shown, len(self._columns), self._distribution
        if stored is None or stored.n_columns != n_columns or n_shown >= stored.expires:
            scores = distribution_of_held_points(self._forest, self._kind)
            stored = self._distribution = _Distribution(scores, n_columns, self._next_update(n_shown))
        return stored.scores

    def _next_update(self, n_shown: int) -> int:
        """Return the number of points at which medians and scores computed now, after n_shown points, expire."""
        return n_shown + max(min(n_shown, self._forest.window or n_shown) // _UPDATES_PER_WINDOW, 1)

    def _learn(self, parts: list["_Rows"]) -> None:
        """Learn the parts in order; if any row is unusable, learn nothing.

        Each part has at least the features of the part before it.
        """
        for columns, categorical, rows in [part for part in map(_checked, parts) if len(part.rows)]:
            self._learning = columns
            self._widen(len(columns), categorical)
            left = rows
            while len(left):
                self._update_medians()
                n_rows = self._medians.expires - self._forest.n_shown
                self._forest.extend(self._medians.filled(left[:n_rows]))
                left = left[n_rows:]
            self._columns, self._learning = columns, None

    @staticmethod
    def _with_features(
        columns: dict[Hashable, int], categorical: tuple[int, ...], is_categorical: dict[Hashable, bool]
    ) -> tuple[dict[Hashable, int], tuple[int, ...]]:
        """Return `columns` and `categorical`, extended by the features of `is_categorical` that are new.

        New features come last, sorted by type and name, so that the order of `is_categorical` has no effect.
        """
        new = sorted(
            (name for name in is_categorical if name not in columns), key=lambda name: (str(type(name)), str(name))
        )
        wider = columns | {name: len(columns) + i for i, name in enumerate(new)}
        return wider, (*categorical, *(wider[name] for name in new if is_categorical[name]))

    def _widen(self, n_columns: int, categorical: tuple[int, ...]) -> None:
        """Add columns to the forest; before its first point, replace it if it has other categorical columns."""
        n_known = self._forest.n_features
        if n_known is not None:
            self._forest.widen(n_columns, {j: MISSING_CODE for j in categorical if j >= n_known})
        elif categorical != self._categorical:
            self._forest = self._empty_forest(categorical)

    def _empty_forest(self, categorical: tuple[int, ...]) -> MondrianForest:
        """Return a forest without points that has the parameters and the locks of the current one."""
        forest = MondrianForest(**self._forest.parameters() | {"categorical": categorical})
        forest._locks = self._locks  # noqa: SLF001 (the caller holds them)
        return forest

    def _update_medians(self) -> None:
        """Compute the medians of the points that the forest holds, if the current ones have expired."""
        n_shown = self._forest.n_shown
        if n_shown >= self._medians.expires:
            values = medians_of_held_points(self._forest) if n_shown else np.empty(0)
            values[[*self._categorical][: values.size]] = 0.0
            self._medians = _Medians(values, self._next_update(n_shown))


class _Rows(NamedTuple):
    """Rows with the same features: codes for categories, NaN for missing numbers."""

    columns: dict[Hashable, int]  # the column of each feature
    categorical: tuple[int, ...]  # the columns that are categories
    rows: Array


class _Distribution(NamedTuple):
    """The distribution of the scores of the points that the forest held when it was computed."""

    scores: ScoreDistribution
    n_columns: int
    expires: int  # number of points learned after which the distribution is computed again


class _Medians(NamedTuple):
    """The medians, which replace missing numbers."""

    values: Array  # the median of each column; new columns are not included yet
    expires: int  # number of points learned after which the medians are computed again

    def filled(self, rows: Array) -> Array:
        """Return rows without gaps; gaps in new columns are filled with 0."""
        is_gap = np.isnan(rows)
        if not is_gap.any():
            return rows
        medians = np.zeros(rows.shape[1])
        medians[: self.values.size] = self.values
        return np.where(is_gap, medians, rows)


def _checked(part: _Rows) -> _Rows:
    """Return the rows that have a value; raise InvalidInputError if one of them is unusable."""
    columns, categorical, rows = part
    rows = rows[have_values(rows, categorical)]
    has_numbers = len(categorical) < len(columns) and len(rows) > 0
    return part._replace(rows=as_points_with_gaps(rows, len(columns)) if has_numbers else rows)


def _columns_of(X: Any) -> dict[Hashable, Any]:
    """Return the columns of a data frame by name."""
    frame = into_frame(X)
    return {name: column.to_native() for name, column in zip(frame.columns, frame.iter_columns(), strict=True)}


def _between(column: Any, start: int, end: int) -> Any:
    """Return the values of a column from position `start` up to, but not including, `end`."""
    return column.iloc[start:end] if hasattr(column, "iloc") else column[start:end]


def _row(x: Mapping[Hashable, Any], columns: Mapping[Hashable, int], categorical: tuple[int, ...]) -> Array:
    """Return the values in the order of the features: codes of categories, NaN for missing numbers."""
    row = _missing_values(len(columns), categorical)
    for name, value in x.items():
        j = columns.get(name)
        if j is not None and not is_missing(value):
            row[j] = category_code(value) if j in categorical else as_number(value, name)
    return row


def _matrix(
    frame: Mapping[Hashable, Any], n_rows: int, columns: Mapping[Hashable, int], categorical: tuple[int, ...]
) -> Array:
    """Return the columns in the order of the features: codes of categories, NaN for missing numbers."""
    matrix = np.tile(_missing_values(len(columns), categorical), (n_rows, 1))
    for name, column in frame.items():
        j = columns.get(name)
        if j is not None:
            matrix[:, j] = codes_of(column) if j in categorical else numbers_of(column, name)
    return matrix


def _missing_values(n_columns: int, categorical: tuple[int, ...]) -> Array:
    """Return a row in which everything is missing."""
    row = np.full(n_columns, np.nan)
    row[list(categorical)] = MISSING_CODE
    return row
