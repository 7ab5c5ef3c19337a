"""How often each category occurs among the points of a forest, and its rarity.

For each categorical feature there is a hash table of codes and counts with linear probing. The hash has a secret key,
so that nobody can choose categories that make it slow; results do not depend on the key.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.randomness import mix_bits

N_POINTS, N_UPDATES, HAS_DROPPED = 0, 1, 2  # the entries of `totals`
N_MASSES = 64  # no count has more bits


class CategoryTable(NamedTuple):
    """The hash tables, one row per categorical feature; the number of columns is a power of two."""

    codes: Array  # NaN in a free entry
    counts: Array
    n_used: Array  # number of entries in use, for each feature
    masses: Array  # for each feature and b, the number of points in categories with 2**b to 2**(b + 1) - 1 points
    totals: Array  # number of points counted, number of changes so far, whether categories have been dropped
    key: Array  # the secret key, one element


@kernel
def write_rarities(table: CategoryTable, X: Array, sample_size: int) -> None:
    """Write the rarities of the categories of each coded row."""
    for i in range(X.shape[0]):
        write_rarities_of_row(table, X[i], sample_size)


@kernel
def write_rarities_and_count(
    table: CategoryTable, X: Array, leaving: Array, sample_size: int, max_entries: int
) -> None:
    """Write the rarities of each coded row and then count the row, as if the rows arrived one after the other.

    leaving[i] has the categories of the point that row i replaces; that point is no longer counted afterwards. If
    leaving[i] is NaN, or if `leaving` has no rows, no point is replaced.
    """
    write_and_count(table, X, leaving, sample_size, max_entries)


@kernel
def write_rarities_ahead(table: CategoryTable, X: Array, leaving: Array, sample_size: int, max_entries: int) -> None:
    """Like `write_rarities_and_count`, but restore the counts afterwards; this requires that no category is dropped.

    One kernel, which a signal cannot interrupt, counts and restores, so that no other code sees the temporary counts.
    """
    write_and_count(table, X, leaving, sample_size, max_entries)
    uncount_rows(table, X, leaving)


@kernel
def count_rows(table: CategoryTable, X: Array, leaving: Array, max_entries: int) -> None:
    """Count the rows as `write_rarities_and_count` does."""
    for i in range(X.shape[0]):
        count_row(table, X[i], leaving, i, max_entries)
    table.totals[N_UPDATES] += 1


@helper
def uncount_rows(table: CategoryTable, X: Array, leaving: Array) -> None:
    """Undo `count_row` for these rows, the last one first."""
    first = X.shape[1] - table.codes.shape[0]
    for i in range(X.shape[0] - 1, -1, -1):
        is_leaving = i < leaving.shape[0] and not np.isnan(leaving[i, 0])
        for k in range(table.codes.shape[0]):
            remove(table, k, X[i, first + k])
            if is_leaving:
                add(table, k, leaving[i, k], 1)
        table.totals[N_POINTS] -= 0 if is_leaving else 1


@kernel
def forget_rows(table: CategoryTable, X: Array) -> None:
    """Stop counting these coded rows."""
    first = X.shape[1] - table.codes.shape[0]
    for i in range(X.shape[0]):
        for k in range(table.codes.shape[0]):
            remove(table, k, X[i, first + k])
        table.totals[N_POINTS] = max(table.totals[N_POINTS] - 1, n_in_categories(table))
    table.totals[N_UPDATES] += 1


@helper
def n_in_categories(table: CategoryTable) -> Any:
    """Count the points in the categories of each feature, without dropped categories; return the largest count."""
    largest = np.int64(0)
    for k in range(table.masses.shape[0]):
        n = np.int64(0)
        for b in range(N_MASSES):
            n += table.masses[k, b]
        largest = max(largest, n)
    return largest


@kernel
def add_entries(table: CategoryTable, k: int, codes: Array, counts: Array) -> None:
    """Add counts to the categories of feature k."""
    for i in range(codes.size):
        add(table, k, codes[i], counts[i])


@kernel
def look_up_counts(table: CategoryTable, k: int, codes: Array, counts: Array) -> None:
    """Write the counts of categories of feature k."""
    for i in range(codes.size):
        counts[i] = count_of(table, k, codes[i])


@helper
def write_and_count(table: CategoryTable, X: Array, leaving: Array, sample_size: int, max_entries: int) -> None:
    """Write the rarities of each coded row, and then count the row."""
    for i in range(X.shape[0]):
        write_rarities_of_row(table, X[i], sample_size)
        count_row(table, X[i], leaving, i, max_entries)


@helper
def write_rarities_of_row(table: CategoryTable, x: Array, sample_size: int) -> None:
    """Write the rarities of the categories of a coded row."""
    n_codes = table.codes.shape[0]
    first = x.size - n_codes
    for k in range(n_codes):
        x[first - n_codes + k] = rarity(table, k, count_of(table, k, x[first + k]), sample_size)


@helper
def rarity(table: CategoryTable, k: int, count: int, sample_size: int) -> float:
    """Return the rarity of a category with this count: 1 for an unusually rare one, smaller for an ordinary one.

    A tree's sample is expected to hold m points whose categories are about as common as this one, or rarer. The rarity
    is 1 if m < 1, else 1 / m ** 2 with m rounded down to a power of two. In a column in which most categories are rare,
    a rare one is therefore ordinary; a category never seen counts like one seen once (the Good-Turing estimate).
    Rounding keeps the rarity of a category the same while shares hardly change, so that equal rows become equal points.
    """
    n_points = table.totals[N_POINTS]
    if n_points == 0:
        return 1.0
    n_above = 0
    for b in range(magnitude(max(count, 1)) + 1, N_MASSES):
        n_above += table.masses[k, b]
    expected = min(sample_size, n_points) * (max(n_points - n_above, 0) / n_points)
    if expected < 1.0:
        return 1.0
    return math.ldexp(1.0, -2 * (math.frexp(expected)[1] - 1))


@helper
def magnitude(count: int) -> int:
    """Return the largest b such that 2**b is at most the count, which must be positive."""
    return math.frexp(float(count))[1] - 1


@helper
def count_row(table: CategoryTable, x: Array, leaving: Array, i: int, max_entries: int) -> None:
    """Count a coded row, and stop counting the categories that leave."""
    first = x.size - table.codes.shape[0]
    is_leaving = i < leaving.shape[0] and not np.isnan(leaving[i, 0])
    for k in range(table.codes.shape[0]):
        if is_leaving:
            remove(table, k, leaving[i, k])
        add(table, k, x[first + k], 1)
        if table.n_used[k] > max_entries:
            drop_rare(table, k, max_entries // 2)
    table.totals[N_POINTS] += 0 if is_leaving else 1


@helper
def count_of(table: CategoryTable, k: int, code: float) -> Any:
    """Return the count of a category."""
    entry = find_entry(table, k, code)
    return table.counts[k, entry]  # 0 in a free entry


@helper
def add(table: CategoryTable, k: int, code: float, count: int) -> None:
    """Add to the count of a category; there must be a free entry."""
    entry = find_entry(table, k, code)
    if np.isnan(table.codes[k, entry]):
        table.codes[k, entry] = code + 0.0
        table.n_used[k] += 1
    change_count(table, k, entry, count)


@helper
def remove(table: CategoryTable, k: int, code: float) -> None:
    """Subtract 1 from the count of a category, and free its entry at 0; ignore a category that is not in the table."""
    entry = find_entry(table, k, code)
    if np.isnan(table.codes[k, entry]):
        return
    change_count(table, k, entry, -1)
    if table.counts[k, entry] == 0:
        free_entry(table, k, entry)


@helper
def change_count(table: CategoryTable, k: int, entry: Any, change: int) -> None:
    """Add to the count of an entry, and update the masses."""
    before = table.counts[k, entry]
    after = before + change
    if before > 0:
        table.masses[k, magnitude(before)] -= before
    if after > 0:
        table.masses[k, magnitude(after)] += after
    table.counts[k, entry] = after


@helper
def find_entry(table: CategoryTable, k: int, code: float) -> Any:
    """Return the entry of a category, or the free entry where it belongs."""
    mask = np.int64(table.codes.shape[1] - 1)
    entry = home_entry(table, code)
    while not np.isnan(table.codes[k, entry]) and table.codes[k, entry] != code:
        entry = (entry + 1) & mask
    return entry


@helper
def home_entry(table: CategoryTable, code: float) -> Any:
    """Return the entry at which the search for a category starts."""
    bits = np.float64(code + 0.0).view(np.uint64)
    return np.int64(mix_bits(bits ^ table.key[0]) & np.uint64(table.codes.shape[1] - 1))


@helper
def free_entry(table: CategoryTable, k: int, entry: Any) -> None:
    """Free an entry, and move later entries back so that every search still finds its category."""
    mask = np.int64(table.codes.shape[1] - 1)
    table.n_used[k] -= 1
    following = (entry + 1) & mask
    while not np.isnan(table.codes[k, following]):
        distance = (following - home_entry(table, table.codes[k, following])) & mask
        if distance >= ((following - entry) & mask):
            table.codes[k, entry] = table.codes[k, following]
            table.counts[k, entry] = table.counts[k, following]
            entry = following
        following = (following + 1) & mask
    table.codes[k, entry] = np.nan
    table.counts[k, entry] = 0


@helper
def drop_rare(table: CategoryTable, k: int, n_kept: int) -> None:
    """Drop the rarest categories of a feature until at most n_kept are left; equally rare ones are treated alike.

    The points of dropped categories still count as points of rare categories: they are in the total, but not in
    `masses`.
    """
    cutoff = smallest_cutoff(table, k, n_kept)
    entry = np.int64(0)
    while entry < table.codes.shape[1]:
        if 0 < table.counts[k, entry] <= cutoff:
            change_count(table, k, entry, -table.counts[k, entry])
            free_entry(table, k, entry)  # may move another category to this entry
        else:
            entry += 1
    table.totals[HAS_DROPPED] = 1


@helper
def smallest_cutoff(table: CategoryTable, k: int, n_kept: int) -> Any:
    """Return the smallest count such that at most n_kept categories have a larger one, by bisection."""
    low, high = np.int64(0), np.int64(2**53)
    while low < high:
        middle = (low + high) // 2
        if n_categories_above(table, k, middle) <= n_kept:
            high = middle
        else:
            low = middle + 1
    return low


@helper
def n_categories_above(table: CategoryTable, k: int, cutoff: Any) -> int:
    """Return the number of categories of a feature with a count above the cutoff."""
    n = 0
    for entry in range(table.counts.shape[1]):
        n += table.counts[k, entry] > cutoff
    return n
