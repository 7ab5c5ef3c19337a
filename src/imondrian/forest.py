"""The isolation Mondrian forest: numpy in, numpy out."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from imondrian.defaults import N_JOBS, N_TREES, SEED
from imondrian.engine.jit import Array
from imondrian.engine.nodes import (
    FIELDS,
    MAX_POINTS,
    MAX_SHOWN,
    NO_LIMIT,
    Trees,
    empty_trees,
    joined,
    resized,
    with_room,
)
from imondrian.engine.randomness import start_streams
from imondrian.engine.rescore import is_aligned, write_leaf_slots
from imondrian.engine.reservoir import copies_held
from imondrian.engine.threads import Threads, pieces
from imondrian.engine.view import Tree, view
from imondrian.errors import EmptyForestError, InvalidInputError
from imondrian.inputs import as_count, as_own, as_point, as_points, as_row, as_weights
from imondrian.locking import Answer, changes, new_locks, reads
from imondrian.option_types import Kind, Scale
from imondrian.samplers import Reservoir, Step, Window, new_sampler
from imondrian.scales import SCALES, new_scale
from imondrian.scales import Scale as Weights
from imondrian.scores import Reading, scoring_of, shares

_TREES_PER_TASK = 4
MAX_SEED = 2**64 - 1


class Snapshot(NamedTuple):
    """All that a forest is, in arrays of its own."""

    parameters: dict[str, Any]  # the arguments of MondrianForest
    trees: Trees
    arrays: dict[str, Array]  # what is kept beside the trees, by name


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
    window : int, optional
        Hold only the latest points, so many of them: of these a tree holds all or, if max_samples is given, a share
        that makes about max_samples. Those that leave the window are forgotten exactly. Memory is fixed.
    scale : None, "std" or array of shape (n_features,)
        Weight of a unit of each feature. None: 1 (the paper). "std": one over the standard deviation of the points
        seen and not forgotten; with a window, of its points, moving on in steps of an eighth of the window. The data
        themselves are never transformed.
    seed : int, default=0
        The same seed and the same calls give the same forest, bit for bit.
    n_jobs : int, default=1
        Number of threads; -1 for one per processor. Results do not depend on it.

    Notes
    -----
    A forest may be used from several threads. Calls that only read it run side by side; a call that changes it waits
    for them and has the forest alone. An interrupted call (Ctrl+C) has shown the trees the first rows up to some row,
    all trees the same ones; `n_points` says how many.

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
        window: int | None = None,
        scale: Scale = None,
        seed: int = SEED,
        n_jobs: int = N_JOBS,
    ) -> None:
        self._n_trees = as_count(n_trees, "n_trees", 1, MAX_POINTS)
        self._max_samples = None if max_samples is None else as_count(max_samples, "max_samples", 1, MAX_POINTS)
        self._window = None if window is None else as_count(window, "window", 1, MAX_POINTS)
        self._given_scale = _checked_scale(scale)
        self._seed = as_count(seed, "seed", 0, MAX_SEED)
        self._locks = new_locks()
        self._threads = Threads(_checked_jobs(n_jobs))
        self._sampler: Reservoir | Window = new_sampler(self._max_samples, self._window)
        self._trees: Trees | None = None
        self._scale: Weights | None = None
        self._reading: Reading | None = None
        self._n_changes = self._n_spare = 0

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
    def window(self) -> int | None:
        """How many of the latest points are held; None if points do not pass by."""
        return self._window

    @property
    def scale(self) -> Any:
        """None, "std" or the weights, as given."""
        return self._given_scale.copy() if isinstance(self._given_scale, np.ndarray) else self._given_scale

    @property
    def seed(self) -> int:
        """The seed, as given."""
        return self._seed

    @property
    def n_jobs(self) -> int:
        """Number of threads; -1 for one per processor."""
        return self._threads.n_jobs

    @n_jobs.setter
    def n_jobs(self, n_jobs: int) -> None:
        self._threads.n_jobs = _checked_jobs(n_jobs)

    @property
    def n_features(self) -> int | None:
        """Number of features; None before the first point."""
        return None if self._trees is None else int(self._trees.points.shape[2])

    @property
    @reads
    def n_points(self) -> int:
        """Number of points shown and not forgotten, whether or not they are in a sample; with a window, of those in it.

        In a forest joined from forests of different points: of the tree that was shown most.
        """
        return 0 if self._trees is None else self._sampler.n_points(self._trees)

    @property
    @reads
    def n_shown(self) -> int:
        """Number of points that the forest has been shown, without those that were forgotten and made up for."""
        return 0 if self._trees is None else self._sampler.n_shown(self._trees)

    @property
    def n_changes(self) -> int:
        """Number of changes so far: if it is the same, so are the trees."""
        return self._n_changes

    @property
    @reads
    def can_score(self) -> bool:
        """Whether any tree holds two different points; until then every score is 0.5."""
        return self._trees is not None and bool(self._trees.heads["n_leaves"].max() > 1)

    @property
    @reads
    def n_bytes(self) -> int:
        """Memory that the trees and the window take; with a window it never changes."""
        return 0 if self._trees is None else sum(array.nbytes for array in self._trees) + self._sampler.n_bytes()

    @property
    @reads
    def n_taken(self) -> tuple[int, int]:
        """How many points the trees have taken from the window's stream, and of these outside their root boxes."""
        heads = None if self._trees is None else self._trees.heads
        return (0, 0) if heads is None else (int(heads["n_taken"].sum()), int(heads["n_outside"].sum()))

    def trees(self) -> Iterator[Tree]:
        """Copy one tree after the other into plain arrays, to look at."""
        for t in range(0 if self._trees is None else self.n_trees):
            yield self._view(t)

    @reads
    def _view(self, t: int) -> Tree:
        return view(self._state()[0], t)

    # -- making and changing ------------------------------------------------------------------------------------

    @changes
    def reserve(self, n_features: int) -> Self:
        """Make the tables before the first point, so that the number of features and, with a window, of bytes is known.

        On a forest that has been shown points it only checks the number.
        """
        n_features = as_count(n_features, "n_features", 1, MAX_POINTS)
        if self._trees is None:
            self._trees, self._scale = self._new_state(n_features, self._sampler.reserve(n_features))
        elif n_features != self.n_features:
            raise InvalidInputError(f"This forest has {self.n_features} features, not {n_features}.")
        return self

    @changes
    def build(self, X: npt.ArrayLike) -> Self:
        """Forget everything, and build every tree on the rows of X, or on its own sample of them (Algorithm 1)."""
        points = as_points(X, None)
        if self._sampler.limit == NO_LIMIT and points.shape[0] > MAX_POINTS:
            raise _too_many(points.shape[0])
        sampler = new_sampler(self.max_samples, self.window)
        n_slots = max(sampler.reserve(points.shape[1]), min(points.shape[0], sampler.limit))
        trees, scale = self._new_state(points.shape[1], n_slots)
        sampler.build(trees, points, scale, self._on_trees)
        self._touch()
        self._n_spare = 0
        self._trees, self._scale, self._sampler = trees, scale, sampler
        return self

    @changes
    def extend(self, X: npt.ArrayLike) -> Self:
        """Show the rows of X to every tree, one after the other (Algorithm 4)."""
        return self._extend(as_points(X, self.n_features))

    @changes
    def extend_one(self, x: npt.ArrayLike) -> Self:
        """Show one point to every tree (Algorithm 4)."""
        return self._extend(as_point(x, self.n_features))

    @changes
    def forget(self, X: npt.ArrayLike) -> Self:
        """Forget the rows of X: every tree is distributed as if it had never held them.

        A row may be one that a tree was shown but did not take into its sample; a sample that has lost points is
        filled up by the next ones that come. It is an error if a tree holds all the points it was shown, and the row
        is not among them. With ``scale="std"`` the weights are those of the points still held; cuts that were made
        before stay as they are.
        """
        points = as_points(X, self._known_features()) + 0.0  # -0.0 becomes 0.0
        trees, scale = self._state()
        self._touch()
        self._sampler.forget(trees, points, scale, self._on_trees)
        return self

    @changes
    def score_and_extend(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Score each row, then show it to every tree, one row after the other; 0.5 as long as nothing is known.

        The scores are those that `score_one` and `extend_one` in turn would give. With a window this is many times as
        fast; there the level with which "size" compares is that of the window's last step.
        """
        scoring = scoring_of(kind)
        points = as_points(X, self.n_features)
        self._check_growth(points.shape[0])
        self.reserve(points.shape[1])
        if isinstance(self._sampler, Window):
            blocks = self._scored_blocks(points.shape[0], kind)
            return np.concatenate([self.score_and_slide(points[rows], kind)[0] for rows in blocks])
        scores = np.full(points.shape[0], 0.5)
        for i in range(points.shape[0]):
            if self.n_points > 0:
                scores[i] = scoring.of_row(self._read(), points[i])
            self._extend(points[i : i + 1])
        return scores

    @changes
    def score_and_slide(self, points: Array, kind: Kind) -> tuple[Array, list[Step]]:
        """Like `score_and_extend` for one block of checked points (see `scored_block`) in a reserved window.

        Returns also the steps that the window took.
        """
        self._check_growth(points.shape[0])
        trees, scale = self._state()
        self._touch()
        return self.sliding.score_and_extend(trees, points, kind, scale, self._on_trees)

    @changes
    def score_and_slide_one(self, point: Array, kind: Kind) -> tuple[float, list[Step]]:
        """Like `score_and_slide` for one point."""
        self._check_growth(1)
        trees, scale = self._state()
        self._touch()
        return self.sliding.score_and_extend_one(trees, point, kind, scale, self._on_trees)

    @changes
    def slide_scored(self, point: Array, score: float) -> None:
        """Show one point that `score_next` has scored to a reserved window."""
        self._check_growth(1)
        trees, scale = self._state()
        self._touch()
        self.sliding.extend_scored(trees, point, score, scale, self._on_trees)

    @property
    def sliding(self) -> Window:
        """The window, in a forest that has one."""
        if not isinstance(self._sampler, Window):
            raise InvalidInputError("This forest has no window.")
        return self._sampler

    @reads
    def score_next(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Give each row the score that `score_and_extend` would give it if it came next; nothing is learned."""
        scoring = scoring_of(kind)
        points = as_points(X, self.n_features)
        if self.n_points == 0:
            return np.full(points.shape[0], 0.5)
        trees, scale = self._state()
        if isinstance(self._sampler, Window):
            return self._sampler.score(trees, points, kind, scale, self._on_trees)
        return scoring.of(self._read(), points)

    def join(self, other: "MondrianForest") -> Self:
        """Take over a copy of the trees of another forest over the same features; the other is left as it is.

        Seed and threads stay those of this forest. Forests of the same seed have the same random streams: give them
        different seeds. Where the two were shown different points, a point can only be forgotten if every tree may
        have been shown it.
        """
        return self._join(other, other.snapshot())

    @changes
    def _join(self, other: "MondrianForest", theirs: Snapshot) -> Self:
        """Join the trees of a snapshot of the other forest, which another thread may go on changing."""
        trees, scale = self._state()
        if theirs.trees.points.shape[2] != self.n_features:
            raise InvalidInputError(f"The forests differ in features: {self.n_features} and {other.n_features}.")
        if other.max_samples != self.max_samples:
            raise InvalidInputError(f"The forests differ in max_samples: {self.max_samples} and {other.max_samples}.")
        if other.window != self.window:
            raise InvalidInputError(f"The forests differ in window: {self.window} and {other.window}.")
        if isinstance(self._sampler, Window) and not self._sampler.has_seen_the_same(theirs.arrays):
            raise InvalidInputError("The forests differ in what their windows have seen.")
        if not np.array_equal(self.scale, other.scale):
            raise InvalidInputError(f"The forests differ in scale: {self.scale!r} and {other.scale!r}.")
        both, n_trees = joined([trees, theirs.trees]), self._n_trees + theirs.trees.heads.size
        scale = scale.copy()
        if self.window is None:
            scale.join(theirs.arrays["moments"])
        if isinstance(self._sampler, Window):
            self._sampler.refresh_levels(both, scale)
        self._touch()
        self._n_spare = 0
        self._trees, self._scale, self._n_trees = both, scale, n_trees  # all or nothing, if it is interrupted
        return self

    # -- asking -------------------------------------------------------------------------------------------------

    @reads
    def score(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
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
        return scoring.of(self._read(), points)

    @reads
    def score_one(self, x: npt.ArrayLike, kind: Kind = "depth") -> float:
        """Score one point as `score` does."""
        scoring, reading = scoring_of(kind), self._reading or self._read()
        return scoring.of_row(reading, as_row(x, reading.trees.points.shape[2]))

    @reads
    def while_unchanged(self, ask: Callable[[], Answer]) -> Answer:
        """Return what `ask` returns; until it does, no other thread changes the forest."""
        return ask()

    @reads
    def explain(self, X: npt.ArrayLike, kind: Kind = "depth") -> Array:
        """Divide the score of each row among its features: positive where the row lies too high, negative too low.

        The sizes of a row's parts sum to its score. Each cut on the way of the row is credited to its feature by
        the share of the crowd that it parts from the row; the side with more credit gives the sign. The shares do not
        depend on `kind`, which sets the score that is divided.
        """
        scoring = scoring_of(kind)
        points = as_points(X, self._known_features())
        return shares(self._read(), points) * scoring.of(self._read(), points)[:, None]

    @reads
    def points(self) -> Array:
        """Give the points that the forest holds now, as `rescore` does; of a window, the oldest first."""
        return self._sampler.points(self._state()[0])

    @reads
    def rescore(self, kind: Kind = "depth") -> tuple[Array, Array]:
        """Score the points that the forest holds now, each as often as it is held; give the points and the scores.

        The paper scores earlier points again after each update. Where all trees hold the same points this takes one
        pass over the nodes, without a walk for every point. Of a forest of samples, the points of all samples; of a
        window, its points, the oldest first.
        """
        scoring, reading, points = scoring_of(kind), self._read(), self.points()
        if points.shape[0] == 0:
            return points, np.empty(0)
        if is_aligned(reading.trees) and reading.trees.copies[0].sum() == points.shape[0]:
            slots = np.empty(points.shape[0], np.int64)
            write_leaf_slots(reading.trees, points, slots)
            return points, scoring.of_held(reading)[slots]
        different, place = np.unique(points, axis=0, return_inverse=True)
        return points, scoring.of(reading, different)[place.ravel()]

    @changes
    def widen(self, n_features: int) -> Self:
        """Add features that are 0 in all points so far, as if they had always been there; none can be taken away."""
        n_known = self._known_features()
        n_features = as_count(n_features, "n_features", n_known, MAX_POINTS)
        if n_features == n_known:
            return self
        if isinstance(self.scale, np.ndarray):
            raise InvalidInputError(f"scale has {n_known} weights; a forest with such a scale cannot be widened.")
        trees, old = self._state()
        wider, scale = resized(trees, trees.cuts.shape[1], n_features), new_scale(self.scale, n_features)
        moments = np.zeros((3, n_features))
        moments[:, :n_known] = old.moments
        moments[0] = old.moments[0, 0]
        scale.restore(moments)
        sampler = self._sampler.widened(n_features)
        self._touch()
        self._trees, self._scale, self._sampler = wider, scale, sampler
        return self

    @reads
    def holds(self, X: npt.ArrayLike) -> Array:
        """Count for each row of X the trees that hold it."""
        points = as_points(X, self._known_features())
        held = np.empty((self.n_trees, points.shape[0]), np.int64)
        copies_held(self._state()[0], points, held)
        return np.count_nonzero(held, axis=0)

    # -- keeping ------------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Give the arguments that make a forest like this one."""
        names = ("n_trees", "max_samples", "window", "scale", "seed", "n_jobs")
        return {name: getattr(self, name) for name in names}

    @reads
    def state(self) -> tuple[Trees, dict[str, Array]]:
        """Return all that changes, as it is and not copied: the trees, and by name the arrays beside them."""
        trees, scale = self._state()
        return trees, {"moments": scale.moments, **self._sampler.state()}

    @reads
    def snapshot(self) -> Snapshot:
        """Copy all that the forest is; of its tables, the slots in use."""
        trees, scale = self._state()
        arrays = {"moments": scale.moments, **self._sampler.state()}
        used = resized(trees, int(trees.heads["n_leaves"].max()))
        return Snapshot(self.parameters(), used, {name: array.copy() for name, array in arrays.items()})

    @classmethod
    def from_state(cls, parameters: dict[str, Any], trees: Trees, arrays: dict[str, Array]) -> Self:
        """Make a forest from the fields of a `Snapshot`; nothing is checked but the layout of the arrays."""
        forest = cls(**parameters)
        forest._restore(trees, arrays)
        return forest

    @reads
    def __getstate__(self) -> dict[str, Any]:
        state = {"parameters": self.parameters()} if self._trees is None else self.snapshot()._asdict()
        return {**state, "n_changes": self._n_changes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "parameters" not in state:
            raise ValueError("This forest was pickled by another version of imondrian; model files can be read by any.")
        self.__init__(**state["parameters"])  # type: ignore[misc]
        if "trees" in state:
            self._restore(state["trees"], state["arrays"])
        self._n_changes = state["n_changes"]

    @reads
    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        if self._trees is None:
            return type(self)(**self.parameters())
        trees, arrays = self.state()
        copied = {name: array.copy() for name, array in arrays.items()}
        other = self.from_state(self.parameters(), Trees(*(array.copy() for array in trees)), copied)
        other._n_changes = self._n_changes  # noqa: SLF001
        return other

    # -- inside -------------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        return self._sampler.changes.pending is None

    def _settle(self) -> None:
        """Finish what an interrupted call has left: tasks that still run, and a block that some trees have seen."""
        if self._threads.crews:
            self._threads.wait_for_strays()
        if self._sampler.changes.pending is not None:
            self._sampler.changes.settle()

    def _restore(self, trees: Trees, arrays: dict[str, Array]) -> None:
        """Take over arrays, or copies of them in the one layout that kernels take."""
        own = Trees(*(as_own(array, field.dtype) for array, field in zip(trees, FIELDS.values(), strict=True)))
        scale, sampler = new_scale(self.scale, own.points.shape[2]), new_sampler(self.max_samples, self.window)
        layouts = sampler.layout(own.points.shape[2])
        scale.restore(arrays["moments"])
        sampler.restore({name: as_own(arrays[name], dtype) for name, (_, dtype) in layouts.items()})
        if self.window is not None and own.cuts.shape[1] < sampler.limit:
            own = resized(own, sampler.limit)
        self._trees, self._scale, self._sampler = own, scale, sampler

    def _new_state(self, n_features: int, n_slots: int) -> tuple[Trees, Weights]:
        trees = empty_trees(self.n_trees, n_slots, n_features)
        start_streams(trees.heads, np.uint64(self.seed))
        return trees, new_scale(self.scale, n_features)

    def _state(self) -> tuple[Trees, Weights]:
        if self._trees is None or self._scale is None:
            raise EmptyForestError("The forest has not been shown any points: call build or extend first.")
        return self._trees, self._scale

    def _known_features(self) -> int:
        return int(self._state()[0].points.shape[2])

    def _read(self) -> Reading:
        trees, scale = self._state()
        if self._reading is None:
            if self.n_points == 0:
                raise EmptyForestError("The forest has forgotten all its points: call build or extend first.")
            self._reading = Reading(trees, scale.weights(), self._threads)
        return self._reading

    def _extend(self, points: Array) -> Self:
        self._check_growth(points.shape[0])
        if self._trees is None:
            self.reserve(points.shape[1])
        for rows in _blocks(points.shape[0], self._sampler.block):
            self._make_room(rows.stop - rows.start, points.shape[0] - rows.start)
            self._extend_block(points[rows])
        return self

    def _extend_block(self, points: Array) -> None:
        """Show a block to the trees; apart, so that nobody holds on to their tables while room is made for the next."""
        trees, scale = self._state()
        self._touch()
        self._sampler.extend(trees, points, scale, self._on_trees)

    def _scored_blocks(self, n_rows: int, kind: str) -> Iterator[slice]:
        """Cut rows into blocks for `score_and_slide`; each is to be shown before the next is asked for."""
        return _blocks(n_rows, lambda n_left: self.sliding.scored_block(n_left, kind))

    def _make_room(self, n_rows: int, n_coming: int) -> None:
        """See to it that every tree has slots for n_rows points more, of n_coming that are on their way.

        Tables grow by doubling, or by what a long batch can need if that is less: it is long if it is at least a
        sixteenth of the table, so that copying costs little beside inserting.
        """
        n_slots, n_used = self._slots()
        if min(n_used + n_rows, self._sampler.limit) <= n_slots:
            return
        wanted = max(2 * n_slots, n_used + n_rows)
        if n_coming >= max(n_slots // 16, 16):
            wanted = min(wanted, n_used + n_coming)
        self._grow(min(wanted, self._sampler.limit))

    def _slots(self) -> tuple[int, int]:
        """Count the slots of a tree, and those in use."""
        trees, _ = self._state()
        return trees.cuts.shape[1], int(trees.heads["n_leaves"].max())

    def _grow(self, n_slots: int) -> None:
        """Give every tree n_slots slots.

        One array after the other is replaced, so that little more than the new ones is in memory at a time. The cuts
        come last: if this is interrupted, their length still says how many slots all arrays have.
        """
        for name in reversed(FIELDS):
            self._touch()
            self._trees = with_room(self._state()[0], name, n_slots)

    def _on_trees(self, change: Callable[[slice], None]) -> None:
        """Change all trees in one call, or some at a time on several threads: an interruption waits for all of them."""
        if self._threads.n == 1:
            change(slice(None))
        else:
            self._threads.run([partial(change, some) for some in pieces(self.n_trees, _TREES_PER_TASK)])

    def _check_growth(self, n_rows: int) -> None:
        """Raise if the trees cannot take, or cannot count, so many more points."""
        self._n_spare -= n_rows  # what can certainly be shown; counting again takes longer than a small change
        if self._n_spare >= 0 or self._trees is None:
            return
        n_points, n_shown = self._sampler.n_points(self._trees), self._sampler.n_shown(self._trees)
        self._n_spare = -1
        if self._sampler.limit == NO_LIMIT and n_points + n_rows > MAX_POINTS:
            raise _too_many(n_points + n_rows)
        if n_shown + n_rows > MAX_SHOWN:
            raise InvalidInputError(f"The forest has been shown {n_shown} points, and can count {MAX_SHOWN} at most.")
        most = MAX_SHOWN - n_shown
        self._n_spare = min(most, MAX_POINTS - n_points) - n_rows if self._sampler.limit == NO_LIMIT else most - n_rows

    def _touch(self) -> None:
        """Note that the trees are about to change: nothing that was derived from them holds any more."""
        self._n_changes += 1
        self._reading = None


def _blocks(n_rows: int, length: Callable[[int], int]) -> Iterator[slice]:
    """Cut rows into blocks, each as long as `length` says when it is asked for, of the rows that are left."""
    first = 0
    while first < n_rows:
        last = first + length(n_rows - first)
        yield slice(first, last)
        first = last


def _too_many(n_points: int) -> InvalidInputError:
    return InvalidInputError(f"{n_points} points are more than a tree can hold, {MAX_POINTS}.")


def _checked_jobs(n_jobs: Any) -> int:
    n_jobs = as_count(n_jobs, "n_jobs", -MAX_POINTS, MAX_POINTS)
    if n_jobs == 0:
        raise InvalidInputError("n_jobs must not be 0; -1 stands for all processors.")
    return n_jobs


def _checked_scale(scale: Any) -> Any:
    if scale is None or (isinstance(scale, str) and scale in SCALES):
        return scale
    if isinstance(scale, str):
        raise InvalidInputError(f"scale must be None, 'std' or one weight per feature, but is {scale!r}.")
    return as_weights(scale, None).copy()
