"""Kernels of the incremental local outlier factor ([Pokrajac2007], with the factors of [Breunig2000]).

`experiments/baselines/incremental_lof.py` has the full references.
"""

from typing import NamedTuple

import numpy as np

from imondrian.engine.jit import Array, helper, kernel

_NO_ENTRY = -1
_DENSITY, _FACTOR = 0, 1  # the two queues of rows to update
_LARGEST = float(np.finfo(np.float64).max)
_SMALLEST_DISTANCE = 1e-10  # added to a mean reachability distance, as in scikit-learn: densities stay finite
_BLOCK = 1024  # rows whose squared distances stay in the cache while features are summed


class Field(NamedTuple):
    """One array of the tables: its type and its axes (the name of a size, or a number)."""

    dtype: type
    axes: tuple[str | int, ...]


FIELDS = {
    "features": Field(np.float64, ("feature", "row")),
    # the neighbours of a row, in any order: all rows have min(k, rows - 1) neighbours in their first slots
    "neighbours": Field(np.int64, ("row", "slot")),
    "squares": Field(np.float64, ("row", "slot")),  # squared distances of the row from these neighbours
    "farthest": Field(np.int64, ("row",)),  # slot of the farthest neighbour; among equally far ones, the latest row
    "k_squares": Field(np.float64, ("row",)),  # squared k-distance: the squared distance of the farthest neighbour
    "densities": Field(np.float64, ("row",)),  # local reachability density; 0 in unused rows
    "factors": Field(np.float64, ("row",)),  # local outlier factor
    # the rows that have this row as a neighbour: a linked list of entries k * row + slot
    "first": Field(np.int64, ("row",)),
    "following": Field(np.int64, ("entry",)),
    "preceding": Field(np.int64, ("entry",)),
    # scratch space of the current insertion: rows to update, each once
    "queue": Field(np.int64, (2, "row")),
    "is_queued": Field(np.bool_, (2, "row")),
    "n_queued": Field(np.int64, (2,)),
    "new_squares": Field(np.float64, ("row",)),  # squared distances from the new row
}


class Tables(NamedTuple):
    """The arrays of FIELDS. The row after the last one learned is scratch space, in which other rows are scored."""

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
    new_squares: Array


def empty_tables(n_rows: int, n_neighbors: int, n_features: int) -> Tables:
    """Return tables for n_rows rows. The memory of a row is not touched until the row is used."""
    sizes = {"row": n_rows, "slot": n_neighbors, "entry": n_rows * n_neighbors, "feature": n_features}

    def zeros(field: Field) -> Array:
        return np.zeros([axis if isinstance(axis, int) else sizes[axis] for axis in field.axes], field.dtype)

    return Tables(*map(zeros, FIELDS.values()))


def resized(tables: Tables, n_rows: int) -> Tables:
    """Copy the tables to larger ones."""
    larger = empty_tables(n_rows, tables.neighbours.shape[1], tables.features.shape[0])
    for new, old in zip(larger, tables, strict=True):
        new[tuple(slice(length) for length in old.shape)] = old
    return larger


@kernel
def insert_rows(tables: Tables, n_rows: int, X: Array) -> tuple[int, int]:
    """Insert the rows of X after the first n_rows rows; return how many densities and factors were updated."""
    n_densities, n_factors = 0, 0
    for i in range(X.shape[0]):
        insert(tables, n_rows + i, X[i])
        n_densities += tables.n_queued[_DENSITY]
        n_factors += tables.n_queued[_FACTOR]
    return n_densities, n_factors


@helper
def insert(tables: Tables, row: int, x: Array) -> None:
    """Insert x as row number `row`, which is also the number of rows before it."""
    n_neighbours = min(row, tables.neighbours.shape[1])
    write_row(tables, row, x)
    write_squared_distances(tables, row, x)
    find_neighbours(tables, row, n_neighbours, row)
    for slot in range(n_neighbours):
        link(tables, row, slot)
    if row <= tables.neighbours.shape[1]:
        offer_to_all(tables, row)
    else:
        offer_to_nearer(tables, row)
    enqueue(tables, _DENSITY, row)
    update_densities(tables, n_neighbours)
    update_factors(tables, n_neighbours)


@kernel
def write_scores(tables: Tables, n_rows: int, X: Array, scores: Array) -> None:
    """Write the factor of each row of X relative to the learned rows; only scratch space changes."""
    n_neighbours = min(n_rows - 1, tables.neighbours.shape[1])
    for i in range(X.shape[0]):
        write_squared_distances(tables, n_rows, X[i])
        find_neighbours(tables, n_rows, n_neighbours, n_rows)
        scores[i] = outlier_factor(tables, n_rows, n_neighbours, reachability_density(tables, n_rows, n_neighbours))


@helper
def write_row(tables: Tables, row: int, x: Array) -> None:
    """Write a new row, which is not yet a neighbour of any row, and empty the queues."""
    for j in range(x.size):
        tables.features[j, row] = x[j]
    tables.first[row] = _NO_ENTRY
    for what in (_DENSITY, _FACTOR):
        for i in range(tables.n_queued[what]):
            tables.is_queued[what, tables.queue[what, i]] = False
        tables.n_queued[what] = 0


@helper
def write_squared_distances(tables: Tables, n_rows: int, x: Array) -> None:
    """Write the squared distances of x from all rows. The order of the sums is fixed, so distances are symmetric."""
    features, squares = tables.features, tables.new_squares
    for block in range((n_rows + _BLOCK - 1) // _BLOCK):
        start = block * _BLOCK
        n_block = min(n_rows - start, _BLOCK)
        for i in range(n_block):
            squares[start + i] = 0.0
        for j in range(x.size):
            value = x[j]
            for i in range(n_block):
                difference = features[j, start + i] - value
                squares[start + i] = min(squares[start + i] + difference * difference, _LARGEST)


@helper
def find_neighbours(tables: Tables, row: int, n_neighbours: int, n_rows: int) -> None:
    """Find the nearest neighbours of a row among the first n_rows rows; of equally near rows, the earlier ones."""
    tables.k_squares[row] = 0.0
    for other in range(n_neighbours):
        add_neighbour(tables, row, other, other, tables.new_squares[other])
    limit = tables.k_squares[row]
    for other in range(n_neighbours, n_rows):
        if tables.new_squares[other] < limit:
            limit = replace_farthest(tables, row, n_neighbours, other, tables.new_squares[other])


@helper
def add_neighbour(tables: Tables, row: int, slot: int, other: int, square: float) -> None:
    """Put another row, which is later than all current neighbours, into the first free slot, `slot`."""
    tables.neighbours[row, slot] = other
    tables.squares[row, slot] = square
    if square >= tables.k_squares[row]:
        tables.farthest[row] = slot
        tables.k_squares[row] = square


@helper
def replace_farthest(tables: Tables, row: int, n_neighbours: int, other: int, square: float) -> float:
    """Replace the farthest neighbour by another row; return the squared distance of the new farthest neighbour."""
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
    """Add the new row to the neighbours of all other rows, none of which has k neighbours yet."""
    for other in range(row):
        add_neighbour(tables, other, row - 1, row, tables.new_squares[other])
        link(tables, other, row - 1)
        enqueue(tables, _DENSITY, other)


@helper
def offer_to_nearer(tables: Tables, row: int) -> None:
    """Add the new row to the neighbours of every row that has a farther neighbour."""
    new_squares, k_squares = tables.new_squares, tables.k_squares
    for other in range(row):
        if new_squares[other] < k_squares[other]:
            exchange_farthest(tables, other, row)
            enqueue(tables, _DENSITY, other)


@helper
def exchange_farthest(tables: Tables, row: int, new: int) -> None:
    """Replace the farthest neighbour by the new row; the k-distance gets shorter or stays the same."""
    slot, k_square = tables.farthest[row], tables.k_squares[row]
    unlink(tables, row, slot)
    shorter = replace_farthest(tables, row, tables.neighbours.shape[1], new, tables.new_squares[row])
    link(tables, row, slot)
    if shorter < k_square:
        enqueue_reaching(tables, row)


@helper
def enqueue_reaching(tables: Tables, row: int) -> None:
    """Enqueue the rows whose reachability distance from this row was this row's previous, longer k-distance.

    Such rows are nearer than the previous k-distance, so they are still neighbours of this row: only its neighbours are
    searched.
    """
    for slot in range(tables.neighbours.shape[1]):
        other = tables.neighbours[row, slot]
        if has_neighbour(tables, other, row, tables.squares[row, slot]):
            enqueue(tables, _DENSITY, other)


@helper
def has_neighbour(tables: Tables, row: int, other: int, square: float) -> bool:
    """Return True if `other`, at this squared distance, is a neighbour of `row`, which must have k neighbours."""
    last = tables.neighbours[row, tables.farthest[row]]
    return square < tables.k_squares[row] or (square == tables.k_squares[row] and other <= last)


@helper
def update_densities(tables: Tables, n_neighbours: int) -> None:
    """Update the queued densities; if one has changed, enqueue the factors that depend on it.

    The density of the new row changes from 0, so all rows that have it as a neighbour are enqueued.
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
def update_factors(tables: Tables, n_neighbours: int) -> None:
    """Update the queued factors."""
    for i in range(tables.n_queued[_FACTOR]):
        row = tables.queue[_FACTOR, i]
        tables.factors[row] = outlier_factor(tables, row, n_neighbours, tables.densities[row])


@helper
def reachability_density(tables: Tables, row: int, n_neighbours: int) -> float:
    """Return 1 / mean reachability distance of a row from its neighbours (Definition 6 of [Breunig2000])."""
    total = 0.0
    for slot in range(n_neighbours):
        total += np.sqrt(max(tables.squares[row, slot], tables.k_squares[tables.neighbours[row, slot]]))
    return 1.0 / (total / max(n_neighbours, 1) + _SMALLEST_DISTANCE)


@helper
def outlier_factor(tables: Tables, row: int, n_neighbours: int, density: float) -> float:
    """Return the neighbours' mean density / the row's density; 1 without neighbours (Definition 7 of [Breunig2000])."""
    if n_neighbours == 0:
        return 1.0
    total = 0.0
    for slot in range(n_neighbours):
        total += tables.densities[tables.neighbours[row, slot]]
    return total / n_neighbours / density


@helper
def enqueue(tables: Tables, what: int, row: int) -> None:
    """Add a row to a queue of rows to update, once."""
    if not tables.is_queued[what, row]:
        tables.is_queued[what, row] = True
        tables.queue[what, tables.n_queued[what]] = row
        tables.n_queued[what] += 1


@helper
def link(tables: Tables, row: int, slot: int) -> None:
    """Let n be the row's neighbour in this slot: add the row to the list of rows that have n as a neighbour."""
    entry, neighbour = row * tables.neighbours.shape[1] + slot, tables.neighbours[row, slot]
    after = tables.first[neighbour]
    tables.following[entry] = after
    tables.preceding[entry] = _NO_ENTRY
    tables.first[neighbour] = entry
    if after != _NO_ENTRY:
        tables.preceding[after] = entry


@helper
def unlink(tables: Tables, row: int, slot: int) -> None:
    """Let n be the row's neighbour in this slot: remove the row from the list of rows that have n as a neighbour."""
    entry = row * tables.neighbours.shape[1] + slot
    before, after = tables.preceding[entry], tables.following[entry]
    if before == _NO_ENTRY:
        tables.first[tables.neighbours[row, slot]] = after
    else:
        tables.following[before] = after
    if after != _NO_ENTRY:
        tables.preceding[after] = before
