"""How often each category occurs among the points of a forest: the counts that rarities are computed from."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from imondrian.engine.category_counts import (
    HAS_DROPPED,
    N_MASSES,
    N_POINTS,
    N_UPDATES,
    CategoryTable,
    add_entries,
    count_rows,
    forget_rows,
    look_up_counts,
    write_rarities,
    write_rarities_ahead,
    write_rarities_and_count,
)
from imondrian.engine.jit import Array, call_without_dispatch
from imondrian.engine.nodes import MAX_COUNT, MAX_VALUE, NO_LIMIT

MAX_CATEGORIES = 2**16  # of one feature, in a forest of bounded memory
_SMALLEST_TABLE = 8
_BYTES_PER_ENTRY = 16
_STATE = {"category_codes": np.dtype(np.float64), "category_counts": np.dtype(np.int64)}


class CategoryCounts:
    """The number of points in each category, for every categorical feature.

    Parameters
    ----------
    n_categorical : int
        Number of categorical features; 0: all methods do nothing.
    sample_size : int
        Number of points that a tree holds, to which rarities are relative.
    max_categories : int, optional
        Maximum number of categories of a feature that are counted; above it, the rarer half is dropped.
    """

    def __init__(self, n_categorical: int, sample_size: int, max_categories: int = NO_LIMIT) -> None:
        self.n_categorical = n_categorical
        self._sample_size = sample_size
        self._max_entries = max_categories
        self._table = _empty_table(n_categorical, _SMALLEST_TABLE)

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return sum(array.nbytes for array in self._table) if self.n_categorical else 0

    @property
    def n_points(self) -> int:
        """Number of points counted."""
        return int(self._table.totals[N_POINTS])

    @property
    def n_updates(self) -> int:
        """Number of changes so far, to find out after an interruption whether a change has happened."""
        return int(self._table.totals[N_UPDATES])

    @property
    def has_dropped(self) -> bool:
        """Whether rare categories have been dropped because there were too many."""
        return bool(self._table.totals[HAS_DROPPED])

    def of(self, k: int, codes: Array) -> Array:
        """Return the number of points in each of these categories of the k-th categorical feature."""
        counts = np.empty(codes.size, np.int64)
        look_up_counts(self._table, k, codes, counts)
        return counts

    def reserve(self, n_rows: int) -> None:
        """Make sure that the categories of n_rows more rows fit into the tables."""
        n_used = int(self._table.n_used.max(initial=0))
        self._make_room(min(n_used + n_rows, max(n_used, self._max_entries) + 1))

    def write_rarities(self, X: Array) -> None:
        """Write the rarities of the categories of each coded row."""
        if self.n_categorical:
            call_without_dispatch(write_rarities, self._table, X, self._sample_size)

    def write_rarities_in_turn(self, X: Array, leaving: Array) -> None:
        """Write the rarities of coded rows as if the rows arrived one after the other, without counting them.

        Call `count` afterwards. The counts do not change: if the call is interrupted, nothing has happened.
        """
        if not self.n_categorical:
            return
        self.reserve(X.shape[0])
        if leaving.shape[0] == 0 and int(self._table.n_used.max()) + X.shape[0] > self._max_entries:
            copied = CategoryTable(*(array.copy() for array in self._table))  # categories may be dropped from the copy
            write_rarities_and_count(copied, X, leaving, self._sample_size, self._max_entries)
            return
        arguments = (self._table, X, leaving, self._sample_size, self._max_entries)
        call_without_dispatch(write_rarities_ahead, *arguments)

    def count(self, X: Array, leaving: Array, n_updates: int) -> None:
        """Count coded rows, unless there have been more than n_updates changes: then they are already counted."""
        if self.n_categorical and self.n_updates == n_updates:
            self.reserve(X.shape[0])
            call_without_dispatch(count_rows, self._table, X, leaving, self._max_entries)

    def uncounted_row(self, X: Array) -> int | None:
        """Return the index of a row with a category that occurs more often in X than it was counted, or None.

        If there is such a row, the rows of X cannot all be among the points counted. X has coded rows.
        """
        first = X.shape[1] - self.n_categorical
        for k in range(0 if self.has_dropped else self.n_categorical):
            codes, index, n_rows = np.unique(X[:, first + k], return_inverse=True, return_counts=True)
            is_wrong = (n_rows > self.of(k, codes))[index.ravel()]
            if is_wrong.any():
                return int(is_wrong.argmax())
        return None

    def forget(self, X: Array, n_updates: int) -> None:
        """Stop counting coded rows, unless there have been more than n_updates changes."""
        if self.n_categorical and self.n_updates == n_updates:
            forget_rows(self._table, X)

    def restart(self, X: Array) -> None:
        """Count these coded rows only, and write their rarities."""
        if not self.n_categorical:
            return
        table, self._table = self._table, _empty_table(self.n_categorical, self._table.codes.shape[1])
        for first in range(0, X.shape[0], MAX_CATEGORIES):
            rows = X[first : first + MAX_CATEGORIES]
            self.count(rows, no_rows(self.n_categorical), self.n_updates)
        self._table.totals[N_UPDATES] = table.totals[N_UPDATES] + 1
        self.write_rarities(X)

    def restart_with(self, entries: Sequence[tuple[Array, Array]], n_points: int) -> None:
        """Set the counts to those of n_points points; `entries` has the categories of each feature and their counts.

        If a feature has too many categories, the most frequent are kept.
        """
        if self.n_categorical:
            kept = [most_frequent(codes, counts, self._max_entries) for codes, counts in entries]
            has_dropped = any(codes.size > self._max_entries for codes, _ in entries)
            self.restore(_as_arrays(n_points, has_dropped, kept))

    def rarity_of_all(self, n_points: int) -> float:
        """Return the rarity of a category that all of n_points points have."""
        counts, row = type(self)(1, self._sample_size), np.zeros((1, 2))
        counts.restore({"category_codes": np.zeros(1), "category_counts": np.array([n_points, 0, 1, n_points])})
        counts.write_rarities(row)
        return float(row[0, 0])

    def joined(self, arrays: dict[str, Array]) -> Self:
        """Return the sum of these counts and those of another forest, given as the arrays that `state` returned."""
        both = type(self)(self.n_categorical, self._sample_size, self._max_entries)
        both.add(self.state())
        both.add(arrays)
        return both

    def widened(self, codes: list[float], n_points: int) -> Self:
        """Return counts with more categorical features, in which all n_points points have the given codes."""
        wider = type(self)(self.n_categorical + len(codes), self._sample_size, self._max_entries)
        # after a join, only `self.n_points` includes the points of both forests
        n_points = self.n_points if self.n_categorical else n_points
        entries = [self.entries(k) for k in range(self.n_categorical)]
        n_each = min(n_points, 1)  # no category has a count of 0
        entries += [(np.full(n_each, code), np.full(n_each, n_points)) for code in codes]
        if entries:
            wider.restore(_as_arrays(n_points, self.has_dropped, entries))
        return wider

    def entries(self, k: int) -> tuple[Array, Array]:
        """Return the categories of the k-th categorical feature, in ascending order, and their counts."""
        codes = self._table.codes[k]
        order = np.argsort(codes)[: int(self._table.n_used[k])]  # free entries are NaN, and NaN comes last
        return codes[order], self._table.counts[k][order]

    def state(self) -> dict[str, Array]:
        """Return the counts as arrays, independent of the key of the hash tables; {} if no feature is categorical."""
        if not self.n_categorical:
            return {}
        return _as_arrays(self.n_points, self.has_dropped, [self.entries(k) for k in range(self.n_categorical)])

    def layout(self) -> dict[str, Any]:
        """Return the shapes and types of the arrays of `state`; -1 stands for any length."""
        return {name: ((-1,), dtype) for name, dtype in _STATE.items()} if self.n_categorical else {}

    def problems(self, arrays: dict[str, Array]) -> Iterator[str]:
        """Yield what is wrong with arrays that should come from `state`."""
        if not self.n_categorical:
            return
        codes, counts, n_totals = arrays["category_codes"], arrays["category_counts"], 2 + self.n_categorical
        sizes = counts[2:n_totals]
        if (
            counts.size < n_totals
            or (sizes < 0).any()
            or not codes.size == sum(map(int, sizes)) == counts.size - n_totals
        ):
            yield "the categories and their counts do not match"
            return
        parts = np.split(codes, np.cumsum(sizes)[:-1])
        if not (np.abs(codes) <= MAX_VALUE).all() or any((np.diff(part) <= 0.0).any() for part in parts):
            yield "the categories are not finite and in ascending order"
        n_points = int(counts[0])
        each = counts[n_totals:]
        if not 0 <= n_points <= MAX_COUNT or counts[1] not in (0, 1) or (each < 1).any() or (each > n_points).any():
            yield "a count of categories is impossible"
        elif any(part.sum(dtype=np.float64) > n_points for part in np.split(counts[n_totals:], np.cumsum(sizes)[:-1])):
            yield "the categories have more points than there are"

    def restore(self, arrays: dict[str, Array]) -> None:
        """Restore what `state` returned, without checks."""
        if self.n_categorical:
            self._table = _empty_table(self.n_categorical, _SMALLEST_TABLE)
            self.add(arrays)

    def add(self, arrays: dict[str, Array]) -> None:
        """Add counts that `state` returned."""
        if not self.n_categorical:
            return
        counts, n_totals = arrays["category_counts"], 2 + self.n_categorical
        ends = np.cumsum(counts[2:n_totals])
        pairs = zip(np.split(arrays["category_codes"], ends[:-1]), np.split(counts[n_totals:], ends[:-1]), strict=True)
        for k, (codes, counts_of_codes) in enumerate(pairs):
            self._add_entries(k, codes, counts_of_codes)
        self._table.totals[N_POINTS] += counts[0]
        self._table.totals[HAS_DROPPED] |= counts[1]

    # -- internal ---------------------------------------------------------------------------------------------

    def _add_entries(self, k: int, codes: Array, counts: Array) -> None:
        """Add categories, even more than the maximum: the rarer half is dropped when the next row is counted."""
        self._make_room(int(self._table.n_used[k]) + codes.size)
        add_entries(self._table, k, np.ascontiguousarray(codes), np.ascontiguousarray(counts))

    def _make_room(self, n_entries: int) -> None:
        """Make room for n_entries categories in every table, so that each is at most two thirds full."""
        if self.n_categorical and 3 * n_entries > 2 * self._table.codes.shape[1]:
            self._table = _grown(self._table, n_entries)


def most_frequent(codes: Array, counts: Array, n: int) -> tuple[Array, Array]:
    """Return the n categories with the largest counts, and their counts; of equal counts, the smaller codes first."""
    if codes.size <= n:
        return codes, counts
    order = np.lexsort((codes, -counts))[:n]
    return codes[order], counts[order]


def _as_arrays(n_points: int, has_dropped: bool, entries: list[tuple[Array, Array]]) -> dict[str, Array]:  # noqa: FBT001
    """Return two arrays: all codes; and the totals, the number of categories of each feature, and all counts."""
    totals = [n_points, has_dropped, *(codes.size for codes, _ in entries)]
    return {
        "category_codes": np.concatenate([codes for codes, _ in entries]),
        "category_counts": np.concatenate([np.array(totals, np.int64), *(counts for _, counts in entries)]),
    }


def no_rows(n_categorical: int) -> Array:
    """Return an empty array for the argument `leaving`: no points leave the window."""
    return np.empty((0, n_categorical))


def _empty_table(n_categorical: int, n_entries: int) -> CategoryTable:
    shape = (n_categorical, n_entries)
    key = np.frombuffer(os.urandom(8), np.uint64).copy()
    return CategoryTable(
        np.full(shape, np.nan),
        np.zeros(shape, np.int64),
        np.zeros(n_categorical, np.int64),
        np.zeros((n_categorical, N_MASSES), np.int64),
        np.zeros(3, np.int64),
        key,
    )


def _grown(table: CategoryTable, n_entries: int) -> CategoryTable:
    """Return a copy of the tables with room for n_entries categories, at most two thirds full."""
    larger = _empty_table(table.codes.shape[0], _n_columns(n_entries, table.codes.shape[1]))
    for k in range(table.codes.shape[0]):
        is_used = ~np.isnan(table.codes[k])
        add_entries(larger, k, table.codes[k][is_used], table.counts[k][is_used])
    larger.totals[:] = table.totals
    return larger


def _n_columns(n_entries: int, n_columns: int = _SMALLEST_TABLE) -> int:
    """Return n_columns, doubled until n_entries categories fill at most two thirds of a table."""
    while 2 * n_columns < 3 * n_entries:
        n_columns *= 2
    return n_columns


def window_count_bytes(n_categorical: int, window: int) -> int:
    """Return `CategoryCounts.n_bytes` for a window, without creating the counts."""
    smallest = sum(array.nbytes for array in _empty_table(n_categorical, 0))
    return smallest + n_categorical * _n_columns(window + 1) * _BYTES_PER_ENTRY if n_categorical else 0
