"""The state of a forest: its trees, its scale and its sampler, and how they grow, are joined, copied and restored."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from imondrian.base.errors import InvalidInputError, NotHeldError
from imondrian.base.free_memory import check_memory
from imondrian.engine.jit import Array
from imondrian.engine.nodes import (
    FIELDS,
    MAX_COUNT,
    MAX_POINTS,
    NO_LIMIT,
    Trees,
    empty_trees,
    joined,
    resized,
    shared_bytes,
    sharing_trees,
    table_bytes,
    with_capacity,
    with_own_points,
)
from imondrian.engine.randomness import start_streams
from imondrian.engine.widen import widened
from imondrian.forest.feature_layout import FeatureLayout, indices_of
from imondrian.forest.forest_parameters import ForestParameters
from imondrian.forest.inputs import as_owned_array, unchanged
from imondrian.forest.samplers import NewFeatures, OnTrees, Sampler, Step, new_sampler
from imondrian.forest.samplers.sampler import not_held_error
from imondrian.forest.scales import Scale, are_valid_moments, new_scale


class Snapshot(NamedTuple):
    """Everything that a forest consists of, usually as a copy."""

    parameters: dict[str, Any]  # the arguments of MondrianForest
    trees: Trees  # with points of their own
    arrays: dict[str, Array]  # the other arrays, by name

    @property
    def categorical(self) -> tuple[int, ...]:
        """Indices of the categorical features."""
        return indices_of(self.parameters["categorical"])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.trees.boxes.shape[3] - len(self.categorical)


def copied(forest: Snapshot) -> Snapshot:
    """Return a copy; of the trees, only the slots in use are copied."""
    used = resized(forest.trees, int(forest.trees.heads["n_leaves"].max()))
    return Snapshot(forest.parameters, used, {name: array.copy() for name, array in forest.arrays.items()})


_POINTS_CHECKED = 256  # of each tree: more may be equal, and equal points take the memory of one


class ForestState:
    """Trees, scale and sampler of a forest, in one object so that all of them are replaced by one assignment.

    The sampler gets copies of the rows (see `owned`): another thread may change the caller's array at any time, and an
    interrupted update is finished by the next call. Exception: if every tree draws a sample and no feature is
    categorical, `build` reads the array itself.
    """

    def __init__(self, trees: Trees, scale: Scale, sampler: Sampler, layout: FeatureLayout) -> None:
        self.trees, self.scale, self.sampler, self.layout = trees, scale, sampler, layout
        self._n_spare = 0  # number of points that can be shown before the limits must be checked again
        # length of the table of points that the trees share, or will share from the next point on; 0 if they never do
        self._n_shared_rows = sampler.n_shared_rows(trees.heads.size, trees.points.shape[2])

    @classmethod
    def empty(cls, parameters: ForestParameters, n_features: int, n_rows: int = 0) -> Self:
        """Return a state without points, with slots for n_rows rows; raise MemoryError if these need too much."""
        layout = FeatureLayout.checked(n_features, parameters.categorical)
        sampler = new_sampler(parameters.max_samples, parameters.window, layout.n_categorical)
        _check_memory(parameters.n_trees, layout, sampler, min(n_rows, sampler.limit, _POINTS_CHECKED))
        n_slots = max(sampler.reserve(layout.n_coordinates), min(n_rows, sampler.limit))
        trees = empty_trees(parameters.n_trees, n_slots, layout.n_coordinates, layout.n_categorical)
        start_streams(trees.heads, np.uint64(parameters.seed))
        state = cls(trees, new_scale(parameters.scale, layout), sampler, layout)
        if state._n_shared_rows:
            state.trees = sharing_trees(trees, state._n_shared_rows)
        return state

    @classmethod
    def restored(cls, parameters: ForestParameters, trees: Trees, arrays: dict[str, Array]) -> Self:
        """Return a state made from these arrays; arrays without the memory layout that kernels need are copied.

        The trees keep the slots they have and get more when points arrive, so that restoring a window takes no more
        memory than the arrays, whatever its length. The trees also begin to share their points only when points arrive.
        """
        fields = zip(trees, FIELDS.values(), strict=True)
        owned = Trees(*(as_owned_array(array, field.dtype) for array, field in fields))
        n_categorical = owned.points.shape[2] - owned.boxes.shape[3]
        layout = FeatureLayout.checked(owned.boxes.shape[3] - n_categorical, parameters.categorical)
        sampler = new_sampler(parameters.max_samples, parameters.window, layout.n_categorical)
        scale, layouts = new_scale(parameters.scale, layout), sampler.layout(layout.n_coordinates)
        scale.restore(arrays["moments"])
        sampler.restore({name: as_owned_array(arrays[name], dtype) for name, (_, dtype) in layouts.items()})
        return cls(owned, scale, sampler, layout)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.layout.n_features

    @property
    def n_points(self) -> int:
        """Number of points shown and neither forgotten nor, with a window, expired."""
        return self.sampler.n_points(self.trees)

    @property
    def is_empty(self) -> bool:
        """Whether `n_points` is 0."""
        return self.sampler.is_empty(self.trees)

    @property
    def n_shown(self) -> int:
        """Number of points shown so far, as the sampler counts them."""
        return self.sampler.n_shown(self.trees)

    @property
    def n_bytes(self) -> int:
        """Memory in bytes of the trees and the sampler; the slots that a window needs are counted from the start."""
        n_slots = max(self.trees.cuts.shape[1], self.sampler.fixed_slots)
        widths = (self.layout.n_coordinates, self.layout.n_categorical)
        if self._n_shared_rows:
            n_bytes = shared_bytes(self.trees.heads.size, n_slots, self.layout.n_coordinates, self._n_shared_rows)
        else:
            n_bytes = table_bytes(self.trees.heads.size, n_slots, *widths)
        return n_bytes + self.sampler.n_bytes()

    def arrays(self) -> dict[str, Array]:
        """Return the arrays other than the trees, by name; these are not copies."""
        return {"moments": self.scale.moments, **self.sampler.state()}

    def coded(self, points: Array) -> Array:
        """Return points, or one point, as coded rows to be scored; unchanged if no feature is categorical."""
        if not self.layout.categorical:
            return points
        rows = self.layout.coded(points)
        self.sampler.counts.write_rarities(rows if rows.ndim == 2 else rows[None])
        return rows

    def coded_with_gaps(self, points: Array) -> Array:
        """Like `coded` for points in which NaN is a missing value; all coordinates of a missing value are NaN."""
        is_gap = np.isnan(points)
        if not is_gap.any():
            return self.coded(points)
        rows = self.coded(np.where(is_gap, 0.0, points))
        rows[self.layout.coded(is_gap)] = np.nan
        return rows

    def build(self, points: Array, on_trees: OnTrees) -> None:
        """Build the trees, which are empty so far, on these points."""
        if self.sampler.limit == NO_LIMIT and points.shape[0] > MAX_POINTS:
            raise _too_many_points(points.shape[0])
        latest = points[-self.sampler.n_latest :]
        needs_copy = self.sampler.needs_owned_rows(points.shape[0]) or bool(self.layout.categorical)
        rows = self.owned(latest) if needs_copy else latest
        self.sampler.build(self.trees, rows, points.shape[0], self.scale, on_trees)
        if not are_valid_moments(self.scale.moments, 0):
            raise InvalidInputError("X was changed while it was being read.")

    def owned(self, points: Array) -> Array:
        """Return checked points, or one point, as coded rows that nobody else can change.

        Raise InvalidInputError if another thread has changed the points since they were checked.
        """
        return unchanged(self.layout.coded(points) if self.layout.categorical else points.copy())

    def extend(self, rows: Array, n_coming: int, on_trees: OnTrees) -> None:
        """Show one block of owned rows to the trees; n_coming rows, including this block, are still to come."""
        self._make_room(rows.shape[0], n_coming)
        self.sampler.extend(self.trees, rows, self.scale, on_trees)

    def score_and_extend(self, rows: Array, kind: str, on_trees: OnTrees) -> tuple[Array, list[Step]]:
        """Score each row of a block of owned rows, then show it to the trees."""
        self._make_room(rows.shape[0], rows.shape[0])
        return self.sampler.score_and_extend(self.trees, rows, kind, self.scale, on_trees)

    def score_and_extend_one(self, row: Array, kind: str, on_trees: OnTrees) -> tuple[float, list[Step]]:
        """Score one owned row, then show it to the trees."""
        self._make_room(1, 1)
        return self.sampler.score_and_extend_one(self.trees, row, kind, self.scale, on_trees)

    def extend_scored(self, row: Array, score: float, on_trees: OnTrees) -> None:
        """Show one owned row that has already been scored to the trees."""
        self._make_room(1, 1)
        self.sampler.extend_scored(self.trees, row, score, self.scale, on_trees)

    def lookup_rows(self, points: Array) -> Array:
        """Return checked points as rows to look up in the trees; nobody else can change these rows (see `owned`)."""
        return unchanged(self.layout.coded_without_rarities(points))

    def prepared_forget(self, points: Array) -> Callable[[OnTrees], None]:
        """Return a function that forgets points; raise InvalidInputError if one cannot have been shown."""
        try:
            return self.sampler.prepared_forget(self.trees, self.lookup_rows(points), self.scale)
        except NotHeldError as error:
            raise not_held_error(points, error.row) from None  # the row as the user gave it

    def joined_with(self, other: Snapshot) -> Self:
        """Return the state with the trees of another forest added; this state does not change."""
        trees, scale = joined([with_own_points(self.trees), other.trees]), self.scale.copy()
        sampler = self.sampler.joined(trees, other.arrays, scale)
        return type(self)(trees, scale, sampler, self.layout)

    def widened(self, parameters: ForestParameters, n_numbers: int, codes: list[float]) -> Self:
        """Return a copy with more features: numbers that are 0 in all points, then categories with these codes.

        `parameters` are those of the wider forest.
        """
        n_new = n_numbers + len(codes)
        layout = FeatureLayout.checked(self.n_features + n_new, parameters.categorical)
        new = NewFeatures(n_numbers, codes, self.sampler.counts.rarity_of_all(self.n_points))
        trees = widened(with_own_points(self.trees), n_numbers, np.array(codes), new.rarity)
        scale, old = new_scale(parameters.scale, layout), self.scale.moments
        moments = np.zeros((3, layout.n_numbers))
        moments[:, : old.shape[1]] = old
        moments[0] = self.n_points if old.shape[1] == 0 else old[0, 0]
        scale.restore(moments)
        return type(self)(trees, scale, self.sampler.widened(self.trees, new), layout)

    def check_growth(self, n_rows: int) -> None:
        """Raise InvalidInputError if the trees cannot hold, or cannot count, n_rows more points."""
        self._n_spare -= n_rows  # the exact check below is slow and not needed for every point
        if self._n_spare >= 0:
            return
        # after a join, the counts of categories cover the points of both forests, `n_shown` only those of the larger
        n_points, n_shown = self.n_points, max(self.n_shown, self.sampler.counts.n_points)
        self._n_spare = -1
        if self.sampler.limit == NO_LIMIT and n_points + n_rows > MAX_POINTS:
            raise _too_many_points(n_points + n_rows)
        if n_shown + n_rows > MAX_COUNT:
            raise InvalidInputError(
                f"The forest has been shown {n_shown} points and can count at most {MAX_COUNT}; "
                f"{n_rows} more are too many."
            )
        n_countable = MAX_COUNT - n_shown
        has_limit = self.sampler.limit != NO_LIMIT
        self._n_spare = (n_countable if has_limit else min(n_countable, MAX_POINTS - n_points)) - n_rows

    def _make_room(self, n_rows: int, n_coming: int) -> None:
        """Make sure that every tree has slots for n_rows more points; n_coming points will arrive in total.

        Tables double in size, or grow by more if these rows need it; for a long batch, they grow no further than the
        batch can need. A batch is long if it has at least 16 rows, and at least a sixteenth as many as the table has
        slots, so that copying costs little compared with inserting.
        """
        self._grow_for(n_rows, n_coming)
        if self._n_shared_rows and self.trees.rows.shape[1] == 0 and self.trees.cuts.shape[1] > 0:
            self._share_points()

    def _share_points(self) -> None:
        """Let the trees share their points, unless that is impossible: then they never do."""
        trees = sharing_trees(self.trees, self._n_shared_rows)
        if self.sampler.share_points(self.trees, trees):
            self.trees = trees
        else:
            self._n_shared_rows = 0

    def _grow_for(self, n_rows: int, n_coming: int) -> None:
        """Grow every tree if it lacks slots for n_rows more points; see `_make_room`."""
        n_slots, limit = self.trees.cuts.shape[1], self.sampler.limit
        if n_slots >= limit:
            return
        n_used = int(self.trees.heads["n_leaves"].max())
        if min(n_used + n_rows, limit) <= n_slots:
            return
        wanted = max(2 * n_slots, n_used + n_rows)
        if n_coming >= max(n_slots // 16, 16):
            wanted = min(wanted, n_used + n_coming)
        self._grow(min(wanted, limit))

    def _grow(self, n_slots: int) -> None:
        """Grow every tree to n_slots slots.

        Arrays are replaced one after the other, so that at most one of them is in memory twice. The cuts come last: if
        this is interrupted, all arrays have at least as many slots as the cuts.
        """
        for name in reversed(FIELDS):
            self.trees = with_capacity(self.trees, name, n_slots)


def _too_many_points(n_points: int) -> InvalidInputError:
    return InvalidInputError(f"A tree can hold at most {MAX_POINTS} points, not {n_points}.")


def _check_memory(n_trees: int, layout: FeatureLayout, sampler: Sampler, n_points: int) -> None:
    """Raise MemoryError if trees of this many different points need more memory than is free."""
    sizes = n_trees, n_points, layout.n_coordinates
    is_shared = sampler.n_shared_rows(n_trees, layout.n_coordinates + layout.n_categorical) > 0
    n_bytes = shared_bytes(*sizes, n_points) if is_shared else table_bytes(*sizes, layout.n_categorical)
    check_memory(n_bytes, f"{n_trees} trees of {n_points} points with {layout.n_features} features need")
