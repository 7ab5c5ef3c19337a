"""The isolation Mondrian forest: numpy in, numpy out."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, NO_LIMIT, Trees, empty_trees, joined, part, resize
from imondrian.engine.randomness import start_streams
from imondrian.engine.remember import build_trees, copies_held, extend_trees, forget_points
from imondrian.engine.rescore import held_points, is_aligned, witnesses
from imondrian.engine.threads import n_threads, pieces, run
from imondrian.engine.view import Tree, view
from imondrian.errors import EmptyForestError, InvalidInputError
from imondrian.inputs import as_count, as_point, as_points, as_weights
from imondrian.scales import SCALES, Scale, new_scale
from imondrian.scores import HELD_SCORES, Reading, scoring_of, shares

_ROWS_PER_BLOCK = 4096  # between two chances to be interrupted; a tree stays in the cache for a block
_TREES_PER_TASK = 4
_MAX_SEED = 2**64 - 1


class MondrianForest:
    """A forest of Mondrian trees that isolate points, built at once or grown point by point.

    The isolation Mondrian forest of Ma et al. (2020). A point that few cuts suffice to isolate is an anomaly.

    Parameters
    ----------
    n_trees : int, default=100
        Number of independent trees. Tree t is the same whatever their number.
    max_samples : int, optional
        How many points a tree holds at the most: its own uniform sample of all points it was shown. By default a
        tree holds all of them (the paper's online mode) and grows with them.
    scale : None, "std" or array of shape (n_features,)
        Weight of a unit of each feature. None: 1 (the paper). "std": one over the standard deviation of the points
        seen and not forgotten. The data themselves are never transformed.
    seed : int, default=0
        The same seed and the same calls give the same forest, bit for bit.
    n_jobs : int, default=1
        Number of threads; -1 for one per processor. Results do not depend on it.

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
        n_trees: int = 100,
        max_samples: int | None = None,
        scale: Literal["std"] | npt.ArrayLike | None = None,
        seed: int = 0,
        n_jobs: int = 1,
    ) -> None:
        self._n_trees = as_count(n_trees, "n_trees", 1, MAX_POINTS)
        self._max_samples = None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS)
        self._given_scale = _checked_scale(scale)
        self._seed = as_count(seed, "seed", 0, _MAX_SEED)
        self.n_jobs = as_count(n_jobs, "n_jobs", -MAX_POINTS, MAX_POINTS)
        if self.n_jobs == 0:
            raise InvalidInputError("n_jobs must not be 0; -1 stands for all processors.")
        self._trees: Trees | None = None
        self._scale: Scale | None = None
        self._reading: Reading | None = None

    def __repr__(self) -> str:
        return f"MondrianForest({', '.join(f'{name}={value!r}' for name, value in self.parameters().items())})"

    # -- what it is and holds -----------------------------------------------------------------------------------

    @property
    def n_trees(self) -> int:
        """Number of trees; those of joined forests are counted."""
        return self._n_trees

    @property
    def max_samples(self) -> int | None:
        """How many points a tree holds at the most; None for no limit."""
        return self._max_samples

    @property
    def scale(self) -> Any:
        """None, "std" or the weights, as given."""
        return self._given_scale

    @property
    def seed(self) -> int:
        """The seed, as given."""
        return self._seed

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first point."""
        return None if self._trees is None else int(self._trees.points.shape[2])

    @property
    def n_points(self) -> int:
        """Number of points shown and not forgotten, whether or not they are in a sample.

        In a forest joined from forests of different points: of the tree that was shown most.
        """
        return 0 if self._trees is None else int(self._trees.heads["n_points"].max())

    @property
    def n_bytes(self) -> int:
        """Memory that the trees take."""
        return 0 if self._trees is None else sum(array.nbytes for array in self._trees)

    def trees(self) -> Iterator[Tree]:
        """Copy one tree after the other into plain arrays, to look at."""
        if self._trees is not None:
            for t in range(self.n_trees):
                yield view(self._trees, t)

    # -- making and changing ------------------------------------------------------------------------------------

    def build(self, X: npt.ArrayLike) -> Self:
        """Forget everything, and build every tree on the rows of X, or on its own sample of them (Algorithm 1)."""
        points = as_points(X, None)
        self._check_growth(0, points.shape[0])
        trees, scale = self._new_state(points.shape[1], min(points.shape[0], self._limit))
        scale.restart(points, points.shape[0])
        weights = scale.weights()
        self._on_trees(trees, lambda some: build_trees(some, points, weights, self._limit))
        self._trees, self._scale, self._reading = trees, scale, None
        return self

    def extend(self, X: npt.ArrayLike) -> Self:
        """Show the rows of X to every tree, one after the other (Algorithm 4)."""
        return self._extend(as_points(X, self.n_features))

    def extend_one(self, x: npt.ArrayLike) -> Self:
        """Show one point to every tree (Algorithm 4)."""
        return self._extend(as_point(x, self.n_features))

    def forget(self, X: npt.ArrayLike) -> Self:
        """Forget the rows of X: every tree is distributed as if it had never held them.

        A row may be one that a tree was shown but did not take into its sample; a sample that has lost points is
        filled up by the next ones that come. It is an error if a tree holds all the points it was shown, and the row
        is not among them. With ``scale="std"`` the weights are those of the points still held; cuts that were made
        before stay as they are.
        """
        points = as_points(X, self._known_features()) + 0.0  # -0.0 becomes 0.0
        trees, scale = self._state()
        self._check_presence(points)
        self._reading = None
        self._on_trees(trees, lambda some: forget_points(some, points))
        if isinstance(self.scale, str):
            scale.restart(held_points(witnesses(trees)), self.n_points)
        return self

    def join(self, other: "MondrianForest") -> Self:
        """Take over a copy of the trees of another forest over the same features; the other is left as it is.

        Seed and threads stay those of this forest. Forests of the same seed have the same random streams: give them
        different seeds. Where the two were shown different points, a point can only be forgotten if every tree may
        have been shown it.
        """
        trees, scale = self._state()
        their_trees, their_moments = other.state()
        if other.n_features != self.n_features:
            raise InvalidInputError(f"The forests differ in features: {self.n_features} and {other.n_features}.")
        if other.max_samples != self.max_samples:
            raise InvalidInputError(f"The forests differ in max_samples: {self.max_samples} and {other.max_samples}.")
        if not np.array_equal(self.scale, other.scale):
            raise InvalidInputError(f"The forests differ in scale: {self.scale!r} and {other.scale!r}.")
        scale.join(their_moments)
        self._trees, self._reading = joined(trees, their_trees), None
        self._n_trees += other.n_trees
        return self

    # -- asking -------------------------------------------------------------------------------------------------

    def score(self, X: npt.ArrayLike, kind: str = "depth") -> Array:
        """Score the rows of X in (0, 1): high is odd, 0.5 as isolated as an average point.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        kind : "depth", "expected" or "size"
            "depth": the path length (Eqs. 1-4). "expected": the expected depth at which the row would be isolated,
            were it inserted now. "size": the size of the row's cell, averaged over all scales of mass.
        """
        scoring = scoring_of(kind)
        points = as_points(X, self._known_features())
        return scoring(self._read(), points)

    def score_one(self, x: npt.ArrayLike, kind: str = "depth") -> float:
        """Score one point as `score` does."""
        scoring = scoring_of(kind)
        point = as_point(x, self._known_features())
        return float(scoring(self._read(), point)[0])

    def explain(self, X: npt.ArrayLike, kind: str = "depth") -> Array:
        """Divide the score of each row among its features: positive where the row lies too high, negative too low.

        The sizes of a row's parts sum to its score. Each cut on the way of the row is credited to its feature by
        the share of the crowd that it parts from the row.
        """
        scoring = scoring_of(kind)
        points = as_points(X, self._known_features())
        return shares(self._read(), points) * scoring(self._read(), points)[:, None]

    def rescore(self, kind: str = "depth") -> tuple[Array, Array]:
        """Score the points that the forest holds now, each as often as it is held; give the points and the scores.

        The paper scores earlier points again after each update. Where all trees hold the same points this takes one
        pass over the nodes, without a walk for every point. Of a forest of samples, the points of all samples.
        """
        scoring, reading = scoring_of(kind), self._read()
        if is_aligned(reading.trees):
            one = part(reading.trees, 0, 1)
            return held_points(one), np.repeat(HELD_SCORES[kind](reading), one.copies[one.copies > 0])
        points, place = np.unique(held_points(reading.trees), axis=0, return_inverse=True)
        return points[place.ravel()], scoring(reading, points)[place.ravel()]

    def widen(self, n_features: int) -> Self:
        """Add features that are 0 in all points so far, as if they had always been there; none can be taken away."""
        n_known = self._known_features()
        n_features = as_count(n_features, "n_features", n_known, MAX_POINTS)
        if isinstance(self.scale, np.ndarray) and n_features > n_known:
            raise InvalidInputError(f"scale has {n_known} weights; a forest with such a scale cannot be widened.")
        moments = self._state()[1].moments
        self._resize(self._slots()[0], n_features)
        self._scale = new_scale(self.scale, n_features)
        self._scale.moments[:, :n_known] = moments
        self._scale.moments[0] = moments[0, 0]
        return self

    def holds(self, X: npt.ArrayLike) -> Array:
        """Count for each row of X the trees that hold it."""
        points = as_points(X, self._known_features())
        return np.count_nonzero(self._copies_held(points), axis=0)

    # -- keeping ------------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Give the arguments that make a forest like this one."""
        return {name: getattr(self, name) for name in ("n_trees", "max_samples", "scale", "seed", "n_jobs")}

    def state(self) -> tuple[Trees, Array]:
        """Give all that changes: the trees, and the moments that the feature weights follow."""
        trees, scale = self._state()
        return trees, scale.moments

    @classmethod
    def from_state(cls, parameters: dict[str, Any], trees: Trees, moments: Array) -> Self:
        """Make a forest from what `parameters` and `state` gave; nothing is checked."""
        forest = cls(**parameters)
        forest._trees, forest._scale = trees, new_scale(forest.scale, trees.points.shape[2])
        forest._scale.moments[:] = moments
        return forest

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return NO_LIMIT if self.max_samples is None else self.max_samples

    def _new_state(self, n_features: int, n_slots: int) -> tuple[Trees, Scale]:
        trees = empty_trees(self.n_trees, n_slots, n_features)
        start_streams(trees.heads, np.uint64(self.seed))
        return trees, new_scale(self.scale, n_features)

    def _state(self) -> tuple[Trees, Scale]:
        if self._trees is None or self._scale is None:
            raise EmptyForestError("The forest has not been shown any points: call build or extend first.")
        return self._trees, self._scale

    def _known_features(self) -> int:
        return int(self._state()[0].points.shape[2])

    def _read(self) -> Reading:
        trees, scale = self._state()
        if self._reading is None:
            if not trees.heads["n_leaves"].any():
                raise EmptyForestError("The forest has forgotten all its points: call build or extend first.")
            self._reading = Reading(trees, scale.weights(), self.n_jobs)
        return self._reading

    def _extend(self, points: Array) -> Self:
        n_rows = points.shape[0]
        self._check_growth(self.n_points, n_rows)
        if self._trees is None:
            self._trees, self._scale = self._new_state(points.shape[1], 1)
        for rows in pieces(n_rows, _ROWS_PER_BLOCK):
            self._make_room(rows.stop - rows.start, n_rows - rows.start)
            self._extend_block(points[rows])
        return self

    def _extend_block(self, points: Array) -> None:
        trees, scale = self._state()
        self._reading = None
        weights = scale.follow(points)
        self._on_trees(trees, lambda some: extend_trees(some, points, weights, self._limit))

    def _make_room(self, n_rows: int, n_coming: int) -> None:
        """See to it that every tree has slots for n_rows points more, of n_coming that are on their way.

        Tables grow by doubling, or by what a long batch can need if that is less: it is long if it is at least a
        sixteenth of the table, so that copying costs little beside inserting.
        """
        n_slots, n_used = self._slots()
        if min(n_used + n_rows, self._limit) <= n_slots:
            return
        wanted = max(2 * n_slots, n_used + n_rows)
        if n_coming >= max(n_slots // 16, 16):
            wanted = min(wanted, n_used + n_coming)
        self._resize(min(wanted, self._limit), self._known_features())

    def _slots(self) -> tuple[int, int]:
        """Count the slots of a tree, and those in use."""
        trees, _ = self._state()
        return trees.cuts.shape[1], int(trees.heads["n_leaves"].max())

    def _resize(self, n_slots: int, n_features: int) -> None:
        """Change the number of slots and features, holding on to no table that has been replaced."""
        arrays = list(self._state()[0])
        self._trees = self._reading = None
        try:
            resize(arrays, n_slots, n_features)
        finally:
            self._trees = Trees(*arrays)

    def _on_trees(self, trees: Trees, change: Callable[[Trees], None]) -> None:
        """Change all trees in one call, or some at a time on several threads: an interruption waits for all of them."""
        n_trees = self.n_trees if n_threads(self.n_jobs) == 1 else _TREES_PER_TASK
        some_trees = [part(trees, some.start, some.stop) for some in pieces(self.n_trees, n_trees)]
        run([partial(change, some) for some in some_trees], self.n_jobs)

    def _check_growth(self, n_points: int, n_rows: int) -> None:
        if self.max_samples is None and n_points + n_rows > MAX_POINTS:
            raise InvalidInputError(f"{n_points + n_rows} points are more than a tree can hold, {MAX_POINTS}.")

    def _check_presence(self, points: Array) -> None:
        """Make sure that each row, as often as it stands there, can be one of those that each tree was shown."""
        heads = self._state()[0].heads
        rows, first_place, counts = np.unique(points, axis=0, return_index=True, return_counts=True)
        absent = np.maximum(counts - self._copies_held(rows), 0)
        n_outside = heads["n_points"] - self._populations()
        if (absent.sum(axis=1) > n_outside).any():
            t = int(np.flatnonzero(absent.sum(axis=1) > n_outside)[0])
            row = int(first_place[absent[t] > 0].min())
            raise InvalidInputError(f"X[{row}] is not in the forest, at least not so often: {points[row]}.")

    def _copies_held(self, points: Array) -> Array:
        """Count the copies of each row in each tree."""
        held = np.empty((self.n_trees, points.shape[0]), np.int64)
        copies_held(self._state()[0], points, held)
        return held

    def _populations(self) -> Array:
        """Count the points in each tree."""
        trees, _ = self._state()
        return trees.copies.sum(axis=1, dtype=np.int64)


def _checked_scale(scale: Any) -> Any:
    if scale is None or (isinstance(scale, str) and scale in SCALES):
        return scale
    if isinstance(scale, str):
        raise InvalidInputError(f"scale must be None, 'std' or one weight per feature, but is {scale!r}.")
    return as_weights(scale, None)
