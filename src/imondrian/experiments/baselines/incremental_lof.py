"""Incremental local outlier factor: a new row updates only the rows whose neighbourhoods change.

[Pokrajac2007] D. Pokrajac, A. Lazarevic, L. J. Latecki, "Incremental local outlier detection for data streams",
CIDM 2007; [Breunig2000] M. Breunig, H.-P. Kriegel, R. Ng, J. Sander, "LOF: identifying density-based local outliers",
SIGMOD 2000.
"""

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import MAX_POINTS
from imondrian.errors import InvalidInputError
from imondrian.inputs import as_count, as_points

_NO_ENTRY = -1
_DENSITY, _FACTOR = 0, 1  # what a row waits for in `queue`
_LARGEST = float(np.finfo(np.float64).max)
_SMALLEST_REACH = 1e-10  # added to a mean reachability distance, as in scikit-learn: copies have a density, too
_BLOCK = 1024  # rows whose squared distances stay in the cache while features are added up
_FIRST_ROOM = 64


class Updates(NamedTuple):
    """Numbers of local reachability densities and of outlier factors computed, new rows included."""

    n_densities: int
    n_factors: int


class IncrementalLOF:
    """The local outlier factor of a stream; after every row, the factors equal a computation from scratch.

    Insertion as in [Pokrajac2007], with the factors of [Breunig2000] as computed by scikit-learn: exactly k neighbours
    (or all other rows, if there are at most k), and 1e-10 added to a mean reachability distance. Differs: of equally
    distant neighbours only the earlier rows are used, not all, so that many copies cost no more than other rows; a
    value that does not change updates no other row; the neighbours of a new row are found by scanning all rows, where
    the paper uses an index.

    Parameters
    ----------
    n_neighbors : int, default=10
        The k of the papers.

    Attributes
    ----------
    n_updates : Updates
        Updates made by the last `fit` or `extend`, summed over the inserted rows.

    Examples
    --------
    >>> from imondrian.experiments.baselines.incremental_lof import IncrementalLOF
    >>> lof = IncrementalLOF(n_neighbors=2).fit([[0.0], [1.0], [2.5], [3.0]])
    >>> lof.learned_scores().round(3)
    array([1.071, 1.071, 0.938, 0.938])
    >>> lof.extend([[20.0]]).n_updates  # it is not a neighbour of any other row
    Updates(n_densities=1, n_factors=1)
    >>> lof.score([[2.0], [9.0]]).round(3)
    array([0.804, 3.571])
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = as_count(n_neighbors, "n_neighbors", 1, MAX_POINTS)
        self.n_updates = Updates(0, 0)
        self._n_rows = 0
        self._tables: Tables | None = None

    def fit(self, X: npt.ArrayLike) -> Self:
        """Forget all rows, then learn these one by one."""
        points = as_points(X, None)
        self._n_rows, self._tables = 0, None
        return self.extend(points)

    def extend(self, X: npt.ArrayLike) -> Self:
        """Learn more rows one by one; `fit` is not required before."""
        points = as_points(X, None if self._tables is None else self._tables.features.shape[0])
        tables = self._tables = self._with_room_for(points)
        self.n_updates = Updates(*map(int, insert_rows(tables, self._n_rows, points)))
        self._n_rows += len(points)
        return self

    def score(self, X: npt.ArrayLike) -> Array:
        """Return the factors of rows without learning them; all 1 if only one row has been learned.

        Each row is compared with the learned rows, whose densities do not change.
        """
        tables = self._learned()
        points = as_points(X, tables.features.shape[0])
        scores = np.empty(len(points))
        write_scores(tables, self._n_rows, points, scores)
        return scores

    def learned_scores(self) -> Array:
        """Return the factors of all learned rows in order of arrival; a single row has the factor 1."""
        return self._learned().factors[: self._n_rows].copy()

    def _learned(self) -> "Tables":
        if self._tables is None:
            raise InvalidInputError("This IncrementalLOF has not learned any rows: call fit or extend first.")
        return self._tables

    def _with_room_for(self, points: Array) -> "Tables":
        """Return tables with space for these rows and one draft row; if they grow, they at least double."""
        needed = self._n_rows + len(points) + 1
        if self._tables is None:
            return empty_tables(max(needed, _FIRST_ROOM), self.n_neighbors, points.shape[1])
        room = self._tables.factors.size
        return self._tables if needed <= room else resized(self._tables, max(needed, 2 * room))


class Field(NamedTuple):
    """One array of the tables: its type and its axes (the name of a size, or a number)."""

    dtype: type
    axes: tuple[str | int, ...]


FIELDS = {
    "features": Field(np.float64, ("feature", "row")),
    # the neighbourhood of a row, in any order: all rows have min(k, rows - 1) neighbours in their first slots
    "neighbours": Field(np.int64, ("row", "slot")),
    "squares": Field(np.float64, ("row", "slot")),  # squared distances to them
    "farthest": Field(np.int64, ("row",)),  # slot of the farthest neighbour; of equally far ones, the latest row
    "k_squares": Field(np.float64, ("row",)),  # squared k-distance: that of the farthest
    "densities": Field(np.float64, ("row",)),  # local reachability density; 0 where no row is yet
    "factors": Field(np.float64, ("row",)),  # local outlier factor
    # the rows that have a row among their neighbours: a list through the entries k * row + slot that name it
    "first": Field(np.int64, ("row",)),
    "following": Field(np.int64, ("entry",)),
    "preceding": Field(np.int64, ("entry",)),
    # work on the present insertion: rows to be renewed, each once
    "queue": Field(np.int64, (2, "row")),
    "is_queued": Field(np.bool_, (2, "row")),
    "n_queued": Field(np.int64, (2,)),
    "gaps": Field(np.float64, ("row",)),  # squared distances from the new row
}


class Tables(NamedTuple):
    """The arrays of FIELDS. The row after the last one learned is the draft, in which others are scored."""

    features: Array
    neighbours: Array
    squares: Array
    farthest: Array
    k_squares: Array
    densities: Array
    factors: Array
    first: Array
    following: Array
    preceding: Array
    queue: Array
    is_queued: Array
    n_queued: Array
    gaps: Array


def empty_tables(n_rows: int, n_neighbors: int, n_features: int) -> Tables:
    """Make tables with room for so many rows; memory is touched only when a row is used."""
    sizes = {"row": n_rows, "slot": n_neighbors, "entry": n_rows * n_neighbors, "feature": n_features}

    def zeros(field: Field) -> Array:
        return np.zeros([axis if isinstance(axis, int) else sizes[axis] for axis in field.axes], field.dtype)

    return Tables(*map(zeros, FIELDS.values()))


def resized(tables: Tables, n_rows: int) -> Tables:
    """Copy the tables into larger ones."""
    larger = empty_tables(n_rows, tables.neighbours.shape[1], tables.features.shape[0])
    for new, old in zip(larger, tables, strict=True):
        new[tuple(slice(length) for length in old.shape)] = old
    return larger


@kernel
def insert_rows(tables: Tables, n_rows: int, X: Array) -> tuple[int, int]:
    """Insert the rows of X behind the n_rows known ones; count the densities and factors renewed."""
    n_densities, n_factors = 0, 0
    for i in range(X.shape[0]):
        insert(tables, n_rows + i, X[i])
        n_densities += tables.n_queued[_DENSITY]
        n_factors += tables.n_queued[_FACTOR]
    return n_densities, n_factors


@helper
def insert(tables: Tables, row: int, x: Array) -> None:
    """Insert x as the row of that number, which is also the number of rows before it."""
    n_neighbours = min(row, tables.neighbours.shape[1])
    begin(tables, row, x)
    write_gaps(tables, row, x)
    choose_neighbours(tables, row, n_neighbours, row)
    for slot in range(n_neighbours):
        link(tables, row, slot)
    if row <= tables.neighbours.shape[1]:
        offer_to_all(tables, row)
    else:
        offer_to_nearer(tables, row)
    enqueue(tables, _DENSITY, row)
    renew_densities(tables, n_neighbours)
    renew_factors(tables, n_neighbours)


@kernel
def write_scores(tables: Tables, n_rows: int, X: Array, scores: Array) -> None:
    """Write the factor of each row of X beside the known ones, changing nothing but the draft."""
    n_neighbours = min(n_rows - 1, tables.neighbours.shape[1])
    for i in range(X.shape[0]):
        write_gaps(tables, n_rows, X[i])
        choose_neighbours(tables, n_rows, n_neighbours, n_rows)
        scores[i] = outlier_factor(tables, n_rows, n_neighbours, reachability_density(tables, n_rows, n_neighbours))


@helper
def begin(tables: Tables, row: int, x: Array) -> None:
    """Write down a new row, nobody's neighbour, and empty the queues."""
    for j in range(x.size):
        tables.features[j, row] = x[j]
    tables.first[row] = _NO_ENTRY
    for what in (_DENSITY, _FACTOR):
        for i in range(tables.n_queued[what]):
            tables.is_queued[what, tables.queue[what, i]] = False
        tables.n_queued[what] = 0


@helper
def write_gaps(tables: Tables, n_rows: int, x: Array) -> None:
    """Write the squared distances of x from all rows, features added in their order: alike from both ends."""
    features, gaps = tables.features, tables.gaps
    for block in range((n_rows + _BLOCK - 1) // _BLOCK):
        start = block * _BLOCK
        n_block = min(n_rows - start, _BLOCK)
        for i in range(n_block):
            gaps[start + i] = 0.0
        for j in range(x.size):
            value = x[j]
            for i in range(n_block):
                apart = features[j, start + i] - value
                gaps[start + i] = min(gaps[start + i] + apart * apart, _LARGEST)


@helper
def choose_neighbours(tables: Tables, row: int, n_neighbours: int, n_rows: int) -> None:
    """Give the row its nearest ones among the first n_rows; who comes later must be nearer to be taken."""
    tables.k_squares[row] = 0.0
    for other in range(n_neighbours):
        add_neighbour(tables, row, other, other, tables.gaps[other])
    limit = tables.k_squares[row]
    for other in range(n_neighbours, n_rows):
        if tables.gaps[other] < limit:
            limit = replace_farthest(tables, row, n_neighbours, other, tables.gaps[other])


@helper
def add_neighbour(tables: Tables, row: int, slot: int, other: int, square: float) -> None:
    """Put another row, later than those held, into the first free slot."""
    tables.neighbours[row, slot] = other
    tables.squares[row, slot] = square
    if square >= tables.k_squares[row]:
        tables.farthest[row] = slot
        tables.k_squares[row] = square


@helper
def replace_farthest(tables: Tables, row: int, n_neighbours: int, other: int, square: float) -> float:
    """Put another row into the place of the farthest neighbour; give the squared distance of the one that is now."""
    neighbours, squares, slot = tables.neighbours, tables.squares, tables.farthest[row]
    neighbours[row, slot] = other
    squares[row, slot] = square
    last = 0
    for slot in range(1, n_neighbours):
        is_later = neighbours[row, slot] > neighbours[row, last]
        if squares[row, slot] > squares[row, last] or (squares[row, slot] == squares[row, last] and is_later):
            last = slot
    tables.farthest[row] = last
    tables.k_squares[row] = squares[row, last]
    return squares[row, last]


@helper
def offer_to_all(tables: Tables, row: int) -> None:
    """Let all rows take the new one for a neighbour, as long as nobody has k of them."""
    for other in range(row):
        add_neighbour(tables, other, row - 1, row, tables.gaps[other])
        link(tables, other, row - 1)
        enqueue(tables, _DENSITY, other)


@helper
def offer_to_nearer(tables: Tables, row: int) -> None:
    """Let those rows take the new one for a neighbour who have one that is farther."""
    gaps, k_squares = tables.gaps, tables.k_squares
    for other in range(row):
        if gaps[other] < k_squares[other]:
            exchange_farthest(tables, other, row)
            enqueue(tables, _DENSITY, other)


@helper
def exchange_farthest(tables: Tables, row: int, new: int) -> None:
    """Take the new row instead of the farthest neighbour; the k-distance becomes shorter, or stays."""
    slot, k_square = tables.farthest[row], tables.k_squares[row]
    unlink(tables, row, slot)
    shorter = replace_farthest(tables, row, tables.neighbours.shape[1], new, tables.gaps[row])
    link(tables, row, slot)
    if shorter < k_square:
        enqueue_reaching(tables, row)


@helper
def enqueue_reaching(tables: Tables, row: int) -> None:
    """Enqueue the rows whose reachability distance from this one was its former, longer k-distance.

    They were nearer than that, hence are among its neighbours still: no list of unknown length is walked.
    """
    for slot in range(tables.neighbours.shape[1]):
        other = tables.neighbours[row, slot]
        if has_neighbour(tables, other, row, tables.squares[row, slot]):
            enqueue(tables, _DENSITY, other)


@helper
def has_neighbour(tables: Tables, row: int, other: int, square: float) -> bool:
    """Tell whether the other row, at that squared distance, is among the neighbours of a row that has all of k."""
    last = tables.neighbours[row, tables.farthest[row]]
    return square < tables.k_squares[row] or (square == tables.k_squares[row] and other <= last)


@helper
def renew_densities(tables: Tables, n_neighbours: int) -> None:
    """Compute the queued densities; where one has changed, enqueue the factors that depend on it.

    The new row's density has changed from 0, so that all who have taken it are among them.
    """
    for i in range(tables.n_queued[_DENSITY]):
        row = tables.queue[_DENSITY, i]
        density = reachability_density(tables, row, n_neighbours)
        if density != tables.densities[row]:
            tables.densities[row] = density
            enqueue(tables, _FACTOR, row)
            entry = tables.first[row]
            while entry != _NO_ENTRY:
                enqueue(tables, _FACTOR, entry // tables.neighbours.shape[1])
                entry = tables.following[entry]


@helper
def renew_factors(tables: Tables, n_neighbours: int) -> None:
    """Compute the queued factors."""
    for i in range(tables.n_queued[_FACTOR]):
        row = tables.queue[_FACTOR, i]
        tables.factors[row] = outlier_factor(tables, row, n_neighbours, tables.densities[row])


@helper
def reachability_density(tables: Tables, row: int, n_neighbours: int) -> float:
    """Give one over the mean reachability distance of a row from its neighbours (Definition 6 of [Breunig2000])."""
    total = 0.0
    for slot in range(n_neighbours):
        total += np.sqrt(max(tables.squares[row, slot], tables.k_squares[tables.neighbours[row, slot]]))
    return 1.0 / (total / max(n_neighbours, 1) + _SMALLEST_REACH)


@helper
def outlier_factor(tables: Tables, row: int, n_neighbours: int, density: float) -> float:
    """Give the mean density of a row's neighbours over its own (Definition 7 of [Breunig2000]); 1 without any."""
    if n_neighbours == 0:
        return 1.0
    total = 0.0
    for slot in range(n_neighbours):
        total += tables.densities[tables.neighbours[row, slot]]
    return total / n_neighbours / density


@helper
def enqueue(tables: Tables, what: int, row: int) -> None:
    """Note that a row is to be renewed, once."""
    if not tables.is_queued[what, row]:
        tables.is_queued[what, row] = True
        tables.queue[what, tables.n_queued[what]] = row
        tables.n_queued[what] += 1


@helper
def link(tables: Tables, row: int, slot: int) -> None:
    """Enter the row in the list of those who have the row in that slot for a neighbour."""
    entry, neighbour = row * tables.neighbours.shape[1] + slot, tables.neighbours[row, slot]
    after = tables.first[neighbour]
    tables.following[entry] = after
    tables.preceding[entry] = _NO_ENTRY
    tables.first[neighbour] = entry
    if after != _NO_ENTRY:
        tables.preceding[after] = entry


@helper
def unlink(tables: Tables, row: int, slot: int) -> None:
    """Take the row out of the list of those who have the row in that slot for a neighbour."""
    entry = row * tables.neighbours.shape[1] + slot
    before, after = tables.preceding[entry], tables.following[entry]
    if before == _NO_ENTRY:
        tables.first[tables.neighbours[row, slot]] = after
    else:
        tables.following[before] = after
    if after != _NO_ENTRY:
        tables.preceding[after] = before
