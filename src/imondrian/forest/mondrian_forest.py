"""The isolation Mondrian forest: numpy in, numpy out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from imondrian.base.defaults import N_JOBS, N_TREES, SEED
from imondrian.base.errors import EmptyForestError, InvalidInputError
from imondrian.base.locking import ReturnType, new_locks, read_locked, write_locked
from imondrian.base.option_types import Kind, Scale
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, Trees, with_own_points
from imondrian.engine.plain_tree import Tree, plain_tree
from imondrian.engine.reservoir import write_copies_held
from imondrian.engine.threads import Threads, even_slices
from imondrian.forest.expected_values import ExpectedValues, expected_values
from imondrian.forest.feature_layout import indices_of
from imondrian.forest.forest_parameters import ForestParameters, checked_n_jobs
from imondrian.forest.forest_state import ForestState, Snapshot, copied
from imondrian.forest.inputs import as_count, as_feature_indices, as_point, as_points, as_points_with_gaps, as_row
from imondrian.forest.samplers import Sampler, Step
from imondrian.forest.scores import UNKNOWN_SCORE, ScoringCache, attributions, score_held_points, score_kind

_TREES_PER_TASK = 4
_NO_POINTS_SHOWN = "The forest has not been shown any points: call build or extend first."
_ALL_FORGOTTEN = "The forest has forgotten all its points: call build or extend first."
Answer = TypeVar("Answer")


class MondrianForest:
    """A forest of Mondrian trees that isolate points, built at once or extended point by point.

    The isolation Mondrian forest of Ma et al. (2020). A point that is isolated by few cuts is an anomaly.

    Parameters
    ----------
    n_trees : int, default=100
        Number of independent trees. Tree t is the same in a forest of any size.
    max_samples : int, optional
        Maximum number of points that a tree holds: its own uniform sample of all points it was shown. By default, a
        tree holds all points (the paper's online mode) and grows with them.
    window : int, optional
        Number of latest points to keep. A tree holds all of them or, if max_samples is given, a random subset of about
        max_samples points. Points that leave the window are forgotten exactly. Memory is fixed.
    scale : None, "std" or array of shape (n_features,), default=None
        Weight of one unit of each feature. None: 1 (the paper). "std": 1 / standard deviation of the points shown and
        not forgotten; with a window, of its points, updated in steps of an eighth of the window. The data are not
        transformed.
    seed : int, default=0
        The same seed and the same calls give the same forest, bit for bit.
    n_jobs : int, default=1
        Number of threads; -1 means one per processor. Results do not depend on it.
    categorical : sequence of int or of bool, default=()
        Indices of the categorical features, or a mask with one entry per feature. A category is an identity, not a
        quantity: equal values are the same category, and the difference of two values means nothing. Each tree puts
        every category at a random place, and rare categories are more isolated than common ones.

    Notes
    -----
    A forest may be used from several threads. Calls that only read run at the same time; a call that changes the forest
    waits for them and runs alone. If a call is interrupted (Ctrl+C), all trees have been shown the same rows: the first
    ones, up to some row. The increase of `n_points` (with a window, of `n_shown`) is the number of these rows. The same
    applies if another thread writes to X while it is being learned and an InvalidInputError is raised.

    Examples
    --------
    >>> import numpy as np
    >>> from imondrian import MondrianForest
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> forest = MondrianForest(max_samples=256).build(X)
    >>> scores = forest.score([[0.0, 0.0], [5.0, 5.0]])
    >>> bool(scores[0] < 0.5 < scores[1])
    True
    >>> forest.extend(X + 5.0).n_points
    1000
    >>> bool(forest.score_one([5.0, 5.0]) < 0.5)
    True
    """

    def __init__(
        self,
        n_trees: int = N_TREES,
        *,
        max_samples: int | None = None,
        scale: Scale = None,
        seed: int = SEED,
        n_jobs: int = N_JOBS,
        window: int | None = None,
        categorical: Sequence[int] | Sequence[bool] | Array = (),
    ) -> None:
        self._parameters = ForestParameters.checked(n_trees, max_samples, window, scale, seed, n_jobs, categorical)
        self._locks = new_locks()
        self._threads = Threads(self._parameters.n_jobs)
        self._state: ForestState | None = None  # None before the first point
        self._cache: ScoringCache | None = None  # of the current trees
        self._n_changes = 0

    def __repr__(self) -> str:
        return f"MondrianForest({', '.join(f'{name}={value!r}' for name, value in self.parameters().items())})"

    # -- properties ---------------------------------------------------------------------------------------------

    @property
    def n_trees(self) -> int:
        """Number of trees, including those of joined forests."""
        return self._parameters.n_trees

    @property
    def max_samples(self) -> int | None:
        """Maximum number of points that a tree holds; None for no limit."""
        return self._parameters.max_samples

    @property
    def window(self) -> int | None:
        """Number of latest points to keep; None without a window."""
        return self._parameters.window

    @property
    def scale(self) -> Any:
        """None, "std" or a copy of the weights."""
        return self._parameters.copy().scale

    @property
    def seed(self) -> int:
        """Seed of the random streams."""
        return self._parameters.seed

    @property
    def n_jobs(self) -> int:
        """Number of threads; -1: one per processor."""
        return self._threads.n_jobs

    @n_jobs.setter
    def n_jobs(self, n_jobs: int) -> None:
        self._threads.n_jobs = checked_n_jobs(n_jobs)

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first point."""
        return None if self._state is None else self._state.n_features

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the categorical features, in ascending order."""
        return indices_of(self._parameters.categorical)

    @property
    def coordinate_features(self) -> list[int]:
        """The feature of each coordinate of `trees`: the numbers, then rarities and places of categorical features."""
        return self._known_state().layout.coordinate_features()

    @property
    @read_locked
    def n_points(self) -> int:
        """Number of points shown and not forgotten, whether or not a tree holds them.

        With a window, the number of points in it. If forests that were shown different points have been joined, the
        largest number of any tree.
        """
        return 0 if self._state is None else self._state.n_points

    @property
    @read_locked
    def n_shown(self) -> int:
        """Number of points shown so far, including those that have left the window.

        Without a window it counts forgotten points too, but not a new point that takes the place of a forgotten one.
        """
        return 0 if self._state is None else self._state.n_shown

    @property
    def n_changes(self) -> int:
        """Number of changes so far; as long as it is the same, the trees are the same."""
        return self._n_changes

    @property
    @read_locked
    def can_score(self) -> bool:
        """Whether any tree holds two different points; until then every score is 0.5."""
        return self._state is not None and bool(self._state.trees.heads["n_leaves"].max() > 1)

    @property
    @read_locked
    def n_bytes(self) -> int:
        """Memory in bytes of the trees and the window.

        With a window, once memory has been allocated (by `reserve` or the first point), only `widen` and `join` change
        it: all memory that the window can need is counted, even if the trees were read from a file and get their memory
        only when points arrive.
        """
        return 0 if self._state is None else self._state.n_bytes

    @property
    @read_locked
    def insertion_counts(self) -> tuple[int, int]:
        """With a window: how many points all trees together inserted, and how many of them outside the root box."""
        heads = None if self._state is None else self._state.trees.heads
        if heads is None:
            return 0, 0
        sums = [heads[name].sum(dtype=np.float64) for name in ("n_taken", "n_outside")]  # may exceed 64 bits
        return int(sums[0]), int(sums[1])

    @property
    def sampler(self) -> Sampler:
        """The sampler, which decides which points each tree holds."""
        return self._known_state().sampler

    def trees(self) -> Iterator[Tree]:
        """Yield a copy of each tree as plain arrays."""
        for t in range(0 if self._state is None else self.n_trees):
            yield self._plain_tree(t)

    @read_locked
    def _plain_tree(self, t: int) -> Tree:
        return plain_tree(self._known_state().trees, t)

    # -- building and changing ----------------------------------------------------------------------------------

    @write_locked
    def reserve(self, n_features: int) -> Self:
        """Allocate memory before the first point. This fixes the number of features and, with a window, the memory.

        If memory is already allocated, only check the number of features.
        """
        n_features = as_count(n_features, "n_features", 1, MAX_POINTS)
        if self._state is None:
            self._state = self._state_for(n_features)
        elif n_features != self.n_features:
            raise InvalidInputError(f"n_features must be {self.n_features}, as in this forest, but is {n_features}.")
        return self

    @write_locked
    def check_growth(self, n_rows: int) -> None:
        """Raise InvalidInputError if the trees cannot hold or count n_rows more points. Call `reserve` first."""
        self._known_state().check_growth(n_rows)

    @write_locked
    def build(self, X: npt.ArrayLike) -> Self:
        """Discard all points and build every tree on the rows of X, or on its own sample of them (Algorithm 1).

        Parameters
        ----------
        X : array of shape (n_rows, n_features)

        Returns
        -------
        MondrianForest
            This forest.
        """
        points = as_points(X, None)
        state = ForestState.empty(self._parameters, points.shape[1], points.shape[0])
        state.build(points, self._on_trees)
        self._mark_changed()
        self._state = state
        return self

    @write_locked
    def extend(self, X: npt.ArrayLike) -> Self:
        """Show the rows of X, one after the other, to every tree (Algorithm 4).

        Parameters
        ----------
        X : array of shape (n_rows, n_features)

        Returns
        -------
        MondrianForest
            This forest.
        """
        return self._extend(as_points(X, self.n_features))

    @write_locked
    def extend_one(self, x: npt.ArrayLike) -> Self:
        """Show one point to every tree (Algorithm 4)."""
        return self._extend(as_point(x, self.n_features))

    @write_locked
    def forget(self, X: npt.ArrayLike) -> Self:
        """Forget the rows of X: every tree is distributed as if it had never held them.

        A row may also be one that a tree was shown but did not accept into its sample. A sample that has lost points
        is refilled by the next points. With ``scale="std"`` the weights are computed from the points still held;
        existing cuts do not change.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)

        Returns
        -------
        MondrianForest
            This forest.

        Raises
        ------
        InvalidInputError
            If a row cannot have been shown to every tree, or is not in the window; then no row is forgotten.
        """
        state = self._known_state()
        points = as_points(X, state.n_features)
        forget = state.prepared_forget(points)
        self._mark_changed()
        forget(self._on_trees)
        return self

    @write_locked
    def score_and_extend(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Score each row, then show it to every tree, one row after the other; the first point gets the score 0.5.

        The scores are those of calling `score_one` and `extend_one` for each row. With a window, this is many times as
        fast, but "size" is relative to a mean log size that is not updated after every row, but in steps of an eighth
        of the window (while it fills, of the points so far).

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        kind : "depth", "expected" or "size"

        Returns
        -------
        array of shape (n_rows,)
        """
        score_kind(kind)
        points = as_points(X, self.n_features)
        state = self._state_for(points.shape[1])
        state.check_growth(points.shape[0])
        blocks = _blocks(points.shape[0], lambda n_left: state.sampler.scored_block_length(n_left, kind))
        return np.concatenate([self._score_and_extend(state, points[rows], kind)[0] for rows in blocks])

    @write_locked
    def score_and_extend_block(self, points: Array, kind: Kind) -> tuple[Array, list[Step]]:
        """Like `score_and_extend` for one block of checked points. Call `reserve` first.

        The block may have at most as many rows as `Sampler.scored_block_length` returns. Return the scores and the
        steps of the window.
        """
        state = self._known_state()
        state.check_growth(points.shape[0])
        return self._score_and_extend(state, points, kind)

    @write_locked
    def score_and_extend_point(self, point: Array, kind: Kind) -> tuple[float, list[Step]]:
        """Like `score_and_extend_block` for one point."""
        state = self._known_state()
        state.check_growth(1)
        row = state.owned(point)
        self._mark_changed()
        return state.score_and_extend_one(row, kind, self._on_trees)

    @write_locked
    def extend_scored(self, point: Array, score: float) -> None:
        """Show one checked point that `score_next` has already scored. Call `reserve` first."""
        state = self._known_state()
        state.check_growth(1)
        row = state.owned(point)
        self._mark_changed()
        state.extend_scored(row, score, self._on_trees)

    def join(self, other: "MondrianForest") -> Self:
        """Add copies of the trees of another forest over the same features; the other forest does not change.

        This forest keeps its seed and its number of threads. Forests with the same seed have the same random streams,
        so use different seeds. If the two were shown different points, a point can be forgotten only if every tree may
        have been shown it.

        Parameters
        ----------
        other : MondrianForest

        Returns
        -------
        MondrianForest
            This forest.

        Raises
        ------
        InvalidInputError
            If the forests differ in features, max_samples, window, the points in the window, or scale.
        """
        return self._join(other, other.snapshot())

    @write_locked
    def _join(self, other: "MondrianForest", theirs: Snapshot) -> Self:
        """Join the trees of a snapshot of the other forest, which another thread may change meanwhile."""
        state = self._known_state()
        if theirs.n_features != state.n_features:
            raise InvalidInputError(f"The forests differ in features: {self.n_features} and {theirs.n_features}.")
        if theirs.categorical != self.categorical:
            raise InvalidInputError(
                f"The forests differ in categorical features: {self.categorical} and {theirs.categorical}."
            )
        for name in ("max_samples", "window"):
            if getattr(other, name) != getattr(self, name):
                raise InvalidInputError(
                    f"The forests differ in {name}: {getattr(self, name)} and {getattr(other, name)}."
                )
        state.sampler.check_join(theirs.arrays)
        if not np.array_equal(self.scale, other.scale):
            raise InvalidInputError(f"The forests differ in scale: {self.scale!r} and {other.scale!r}.")
        parameters = self._parameters._replace(n_trees=self.n_trees + theirs.trees.heads.size)
        joined_state = state.joined_with(theirs)
        self._mark_changed()
        self._state, self._parameters = joined_state, parameters  # one line: all or nothing if interrupted
        return self

    @write_locked
    def widen(self, n_features: int, codes: Mapping[int, float] | None = None) -> Self:
        """Add features that have the same value in all points so far, as if they had always been there.

        Parameters
        ----------
        n_features : int
            The new number of features, at least the current one.
        codes : dict, optional
            The new features that are categorical, by index, with the category that all points so far have. All other
            new features are numbers, which are 0.

        Returns
        -------
        MondrianForest
            This forest.
        """
        state, new_codes = self._known_state(), dict(sorted((codes or {}).items()))
        n_known = state.n_features
        n_features = as_count(n_features, "n_features", n_known, MAX_POINTS)
        for j in new_codes:
            as_count(j, "The index of a new categorical feature", n_known, n_features - 1)
        if n_features == n_known:
            return self
        if isinstance(self._parameters.scale, np.ndarray):
            raise InvalidInputError(f"scale has {n_known} weights; a forest with such a scale cannot be widened.")
        values = as_row(list(new_codes.values()), None).tolist() if new_codes else []
        parameters = self._parameters._replace(categorical=(*self.categorical, *new_codes))
        wider = state.widened(parameters, n_features - n_known - len(new_codes), values)
        self._mark_changed()
        self._state, self._parameters = wider, parameters  # one line: all or nothing if interrupted
        return self

    # -- scoring ------------------------------------------------------------------------------------------------

    @read_locked
    def score(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Score the rows of X.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        kind : "depth", "expected" or "size"
            "depth": the path length (Eqs. 1-4). "expected": the expected depth at which the row would be isolated if it
            were inserted now. "size": the log size of the cells on the path to the row's leaf, averaged such that every
            halving of the number of points in the cell has equal weight.

        Returns
        -------
        array of shape (n_rows,)
            Scores in (0, 1): high is anomalous, 0.5 is as isolated as an average point.
        """
        scoring = score_kind(kind)
        state = self._known_state()
        points = as_points(X, state.n_features)
        return scoring.score(self._scoring_cache(), state.coded(points))

    @read_locked
    def score_one(self, x: npt.ArrayLike, kind: Kind = "depth") -> float:
        """Like `score` for one point."""
        scoring, cache, state = score_kind(kind), self._cache or self._scoring_cache(), self._known_state()
        row = as_row(x, state.layout.n_features)
        return scoring.score_row(cache, state.coded(row) if state.layout.categorical else row)

    @read_locked
    def while_unchanged(self, function: Callable[[], ReturnType]) -> ReturnType:
        """Call a function and return its result; meanwhile, no other thread can change the forest."""
        return function()

    @read_locked
    def score_next(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Return the score that `score_and_extend` would give each row if it came next; nothing is learned."""
        score_kind(kind)
        points = as_points(X, self.n_features)
        if self._state is None or self._state.is_empty:
            return np.full(points.shape[0], UNKNOWN_SCORE)
        rows = self._known_state().coded(points)
        return self.sampler.score_next(self._scoring_cache(), rows, kind, self._on_trees)

    @read_locked
    def explain(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Divide the score of each row among its features.

        Each cut on the path of a row adds credit to its feature: the more points it separates from the row, the more
        credit. The sign is that of the side (high or low) with more credit. The shares of the features do not depend on
        `kind`, which selects the score that is divided.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        kind : "depth", "expected" or "size"

        Returns
        -------
        array of shape (n_rows, n_features)
            Positive if the value is unusually high, negative if unusually low; the absolute values of a row sum to its
            score. The part of a category is never negative.
        """
        scoring, cache, state = score_kind(kind), self._scoring_cache(), self._known_state()
        rows = state.coded(as_points(X, state.n_features))
        return state.layout.signed_shares(attributions(cache, rows)) * scoring.score(cache, rows)[:, None]

    @read_locked
    def expected_values(self, X: npt.ArrayLike, features: npt.ArrayLike | None = None) -> ExpectedValues:
        """Return the ordinary values of features of each row, given its other features.

        In each tree, up to four walks start at the root and follow the row. At a cut on the feature, they are
        distributed over the two sides. Of the leaves reached, the one nearest to the row in the other features is
        chosen, and the tree expects the value of its point. A row that a tree holds is not compared with itself: one
        copy of it is left out. Nothing changes in the forest, and the result depends only on the forest and the row.
        Not to be confused with the score `kind="expected"`.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            NaN is a missing value; cuts on missing features are treated like cuts on the requested feature. A row must
            have at least one value.
        features : array of int of shape (n_asked,) or (n_rows, n_asked), optional
            Indices of the features, the same for all rows or different ones for each row. By default all features.

        Returns
        -------
        ExpectedValues
            `median`, `low` and `high`, arrays of shape (n_rows, n_asked): the median and the 5 % and 95 % quantiles
            over the trees. For a categorical feature, all three are the category that the largest number of trees
            expects, and `share` is the share of these trees. NaN if no tree holds a point, which is possible with a
            window and a small `max_samples`.

        Examples
        --------
        >>> import numpy as np
        >>> from imondrian import MondrianForest
        >>> hour = np.random.default_rng(0).uniform(0, 24, size=2_000)
        >>> X = np.column_stack([hour, 20 + 5 * (hour > 12)])  # 20 degrees in the morning, 25 in the afternoon
        >>> forest = MondrianForest(max_samples=256, scale="std").build(X)
        >>> expected = forest.expected_values([[9.0, 25.0], [15.0, 25.0]], features=[1])
        >>> expected.median.tolist()
        [[20.0], [25.0]]
        >>> expected.low.tolist(), expected.high.tolist()
        ([[20.0], [25.0]], [[20.0], [25.0]])
        """
        cache, state = self._scoring_cache(), self._known_state()
        points = as_points_with_gaps(X, state.n_features)
        indices = as_feature_indices(features, state.n_features, len(points))
        return expected_values(cache, state.layout, state.coded_with_gaps(points), indices)

    @read_locked
    def impute(self, X: npt.ArrayLike) -> Array:
        """Return a copy of X in which each missing value (NaN) is replaced by its expected value.

        A number is replaced by the median of `expected_values`, a category by the one that the largest number of trees
        expects.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            A row must have at least one value.

        Returns
        -------
        array of shape (n_rows, n_features)

        Examples
        --------
        >>> import numpy as np
        >>> from imondrian import MondrianForest
        >>> x = np.random.default_rng(0).normal(size=1_000)
        >>> forest = MondrianForest(seed=0).build(np.column_stack([x, -x]))
        >>> filled = forest.impute([[1.0, np.nan], [np.nan, 0.5]])
        >>> filled.round(1).tolist()
        [[1.0, -1.0], [-0.5, 0.5]]
        """
        self._scoring_cache()  # raises if the forest is empty
        filled = as_points_with_gaps(X, self.n_features).copy()
        is_gap = np.isnan(filled)
        n_gaps = is_gap.sum(axis=1)
        for n in np.unique(n_gaps[n_gaps > 0]):  # rows with the same number of gaps together
            rows = np.flatnonzero(n_gaps == n)
            features = np.nonzero(is_gap[rows])[1].reshape(rows.size, n)
            filled[rows[:, None], features] = self.expected_values(filled[rows], features).median
        return filled

    @read_locked
    def points(self) -> Array:
        """Return the points that the forest holds, in the order of `rescore`; those of a window oldest first."""
        state = self._known_state()
        return state.layout.uncoded(state.sampler.points(state.trees))

    @read_locked
    def numbered_points(self, first: int, end: int) -> Array:
        """Return the points with the numbers first, ..., end - 1, oldest first, that are in the window."""
        state = self._known_state()
        window: Any = state.sampler  # only a forest with a window numbers its points
        return state.layout.uncoded(window.numbered_points(first, end))

    @read_locked
    def n_numbered_points(self, first: int, end: int) -> int:
        """Return how many of the points with the numbers first, ..., end - 1 are in the window."""
        window: Any = self._known_state().sampler
        n_points: int = window.n_numbered_points(first, end)
        return n_points

    @read_locked
    def points_and_copies(self) -> tuple[Array, Array]:
        """Return the points that the forest holds and the number of copies of each.

        The memory needed does not depend on the number of copies. A point may occur more than once.
        """
        state = self._known_state()
        points, copies = state.sampler.points_and_copies(state.trees)
        return state.layout.uncoded(points), copies

    @read_locked
    def category_counts(self, feature: int, codes: npt.ArrayLike) -> tuple[Array, int]:
        """Return how many of the points shown and not forgotten have each category.

        Parameters
        ----------
        feature : int
            Index of a categorical feature.
        codes : array of shape (n_codes,)
            The numbers that stand for the categories.

        Returns
        -------
        counts : array of shape (n_codes,)
            The counts. With more than 65,536 categories and `max_samples`, rare ones may have been dropped: they have
            the count 0.
        n_points : int
            The number of points counted; with a window, of those in it.
        """
        state = self._known_state()
        if feature not in state.layout.categorical:
            raise InvalidInputError(f"The feature {feature!r} is not categorical; {self.categorical} are.")
        counts = state.sampler.counts
        return counts.of(state.layout.categorical.index(feature), as_row(codes, None)), counts.n_points

    @property
    @read_locked
    def has_dropped_categories(self) -> bool:
        """Whether some rare categories are no longer counted because there were too many."""
        return self._state is not None and self._state.sampler.counts.has_dropped

    @read_locked
    def rescore(self, kind: Kind = "depth") -> tuple[Array, Array]:
        """Score the points that the forest holds now, including copies.

        The paper scores earlier points again after each update. If all trees hold the same points, this takes a single
        pass over the nodes instead of one walk per point.

        Parameters
        ----------
        kind : "depth", "expected" or "size"

        Returns
        -------
        points : array of shape (n_points, n_features)
            The points of all samples; with a window, its points, oldest first.
        scores : array of shape (n_points,)
        """
        scores, copies = self.rescore_without_copies(kind)
        return self.points(), np.repeat(scores, copies)

    @read_locked
    def rescore_without_copies(self, kind: Kind = "depth") -> tuple[Array, Array]:
        """Score the points of `points_and_copies`; return the scores and the numbers of copies."""
        score_kind(kind)
        cache, state = self._scoring_cache(), self._known_state()
        points, copies = state.sampler.points_and_copies(state.trees)
        return score_held_points(cache, points, copies, kind), copies

    @read_locked
    def n_trees_holding(self, X: npt.ArrayLike) -> Array:
        """Return, for each row of X, the number of trees that hold it."""
        state = self._known_state()
        rows = state.lookup_rows(as_points(X, state.n_features))
        held = np.empty((self.n_trees, rows.shape[0]), np.int64)
        write_copies_held(state.trees, rows, held)
        return np.count_nonzero(held, axis=0)

    # -- saving and copying -------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return the constructor arguments of this forest."""
        return self._parameters.copy()._replace(n_jobs=self.n_jobs)._asdict()

    @read_locked
    def state(self) -> tuple[Trees, dict[str, Array]]:
        """Return the trees and a dictionary of the other arrays of the state; most are not copies."""
        state = self._known_state()
        return with_own_points(state.trees), state.arrays()

    def snapshot(self) -> Snapshot:
        """Return a copy of the parameters and the state; of the trees, only the slots in use are copied."""
        return self.read_state(copied)

    @read_locked
    def read_state(self, function: Callable[[Snapshot], Answer]) -> Answer:
        """Return the result of a function of the parameters and the state, which it must neither change nor keep."""
        state = self._known_state()
        return function(Snapshot(self.parameters(), with_own_points(state.trees), state.arrays()))

    @classmethod
    def from_state(cls, parameters: dict[str, Any], trees: Trees, arrays: dict[str, Array]) -> Self:
        """Make a forest from the fields of a `Snapshot`; only the layout of the arrays is checked."""
        forest = cls(**parameters)
        forest._state = ForestState.restored(forest._parameters, trees, arrays)
        return forest

    @read_locked
    def __getstate__(self) -> dict[str, Any]:
        state = {"parameters": self.parameters()} if self._state is None else self.snapshot()._asdict()
        return {**state, "n_changes": self._n_changes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "parameters" not in state:
            raise ValueError("This forest was pickled by another version of imondrian; use model files instead.")
        self.__init__(**state["parameters"])  # type: ignore[misc]
        if "trees" in state:
            self._state = ForestState.restored(self._parameters, state["trees"], state["arrays"])
        self._n_changes = state["n_changes"]

    @read_locked
    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        if self._state is None:
            return type(self)(**self.parameters())
        trees, arrays = self.state()
        copied = {name: array.copy() for name, array in arrays.items()}
        other = self.from_state(self.parameters(), Trees(*(array.copy() for array in trees)), copied)
        other._n_changes = self._n_changes  # noqa: SLF001
        return other

    # -- internal -----------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        return self._state is None or self._state.sampler.updates.pending is None

    def _settle(self) -> None:
        """Finish the work of an interrupted call: running tasks, and a block that only some trees have been shown."""
        if self._threads.running:
            self._threads.wait_for_running_tasks()
        if self._state is not None:
            self._state.sampler.updates.finish_pending()

    def _known_state(self) -> ForestState:
        if self._state is None:
            raise EmptyForestError(_NO_POINTS_SHOWN)
        return self._state

    def _scoring_cache(self) -> ScoringCache:
        state = self._known_state()
        if self._cache is None:
            if state.is_empty:
                raise EmptyForestError(_ALL_FORGOTTEN if state.n_shown else _NO_POINTS_SHOWN)
            self._cache = ScoringCache(state.trees, state.scale.weights(), self._threads)
        return self._cache

    def _state_for(self, n_features: int) -> ForestState:
        """Return the state or, before the first point, an empty state for points with n_features features.

        An empty state becomes the forest's state only when its first rows have been checked, so that a refused call
        does not fix the number of features.
        """
        if self._state is not None:
            return self._state
        return ForestState.empty(self._parameters, as_count(n_features, "n_features", 1, MAX_POINTS))

    def _extend(self, points: Array) -> Self:
        state, n_rows = self._state_for(points.shape[1]), points.shape[0]
        state.check_growth(n_rows)
        for block in _blocks(n_rows, state.sampler.block_length):
            rows = state.owned(points[block])
            self._mark_changed()
            self._state = state
            state.extend(rows, n_rows - block.start, self._on_trees)
        return self

    def _score_and_extend(self, state: ForestState, points: Array, kind: Kind) -> tuple[Array, list[Step]]:
        rows = state.owned(points)
        self._mark_changed()
        self._state = state
        return state.score_and_extend(rows, kind, self._on_trees)

    def _on_trees(self, function: Callable[[slice], None]) -> None:
        """Apply a function to all trees in one call, or to slices of the trees on several threads."""
        if self._threads.n_threads == 1:
            function(slice(None))
        else:
            self._threads.run([partial(function, part) for part in even_slices(self.n_trees, _TREES_PER_TASK)])

    def _mark_changed(self) -> None:
        """Record that the trees are about to change, which invalidates the cache."""
        self._n_changes += 1
        self._cache = None


def _blocks(n_rows: int, length: Callable[[int], int]) -> Iterator[slice]:
    """Yield consecutive blocks of rows; `length` is called for each block with the number of rows left."""
    first = 0
    while first < n_rows:
        end = first + length(n_rows - first)
        yield slice(first, end)
        first = end
