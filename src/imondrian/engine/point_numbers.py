"""Number the distinct points of a forest, so that a model file contains each of them once.

Points are found in a hash table with linear probing. An entry of the table has the number and the hash of a point. A
number stands for a row of the ring, or for the point of the first leaf that has this number.
"""

from typing import Any

import numpy as np

from imondrian.engine.jit import Array, allocating_helper, helper, kernel
from imondrian.engine.randomness import STEP, mix_bits

_FREE = -1
_SMALLEST_TABLE = 64


@kernel
def number_points(points: Array, n_leaves: Array, ring: Array, key: np.uint64, leaves: Array, first_leaf: Array) -> int:
    """Write the number of the point in each leaf; return how many distinct points are not rows of the ring.

    Equal points have equal numbers. Points are compared bit by bit, so that 0.0 and -0.0 differ. The hash has a secret
    key, so that nobody can choose points that make the search slow.

    Parameters
    ----------
    points : array of shape (n_trees, n_slots, n_columns)
        The coded points: the bits of each float64 as a 64-bit integer.
    n_leaves : array
        The number of leaves of each tree.
    ring : array of shape (n_rows, n_columns)
        The points of the window, if there is one. Its rows have the numbers 0, ..., n_rows - 1. Other points are
        numbered from n_rows on, in the order of the leaves.
    key : int
        The secret key of the hash.
    leaves : array of shape (n_trees, n_slots)
        Output: the number of the point in each leaf.
    first_leaf : array
        Output: for each number from n_rows on, the first leaf that has it, as an index into the flattened `leaves`.
    """
    rows = points.reshape((points.shape[0] * points.shape[1], points.shape[2]))
    numbers, hashes = index_of_ring(ring, rows, first_leaf, key)
    n_numbers = ring.shape[0]
    for t in range(points.shape[0]):
        # True while every leaf so far has the same point as in the previous tree; then no search is needed
        is_repetition = t > 0
        for slot in range(n_leaves[t]):
            x = points[t, slot]
            is_repetition = is_repetition and slot < n_leaves[t - 1]
            is_repetition = is_repetition and is_numbered_row(x, leaves[t - 1, slot], ring, rows, first_leaf)
            if is_repetition:
                leaves[t, slot] = leaves[t - 1, slot]
                continue
            x_hash = hash_of(x, key)
            entry = entry_of(x, x_hash, numbers, hashes, ring, rows, first_leaf)
            if numbers[entry] == _FREE:
                numbers[entry], hashes[entry] = n_numbers, x_hash
                first_leaf[n_numbers - ring.shape[0]] = t * points.shape[1] + slot
                n_numbers += 1
            leaves[t, slot] = numbers[entry]
            if 2 * n_numbers > numbers.size:
                numbers, hashes = enlarged(numbers, hashes)
    return n_numbers - ring.shape[0]


@allocating_helper
def index_of_ring(ring: Array, rows: Array, first_leaf: Array, key: Any) -> tuple[Array, Array]:
    """Return a hash table with the rows of the ring: numbers and hashes. Of equal rows, it has the first."""
    n_entries = _SMALLEST_TABLE
    while n_entries < 4 * ring.shape[0]:
        n_entries *= 2
    numbers, hashes = np.full(n_entries, _FREE), np.empty(n_entries, np.uint64)
    for i in range(ring.shape[0]):
        row_hash = hash_of(ring[i], key)
        entry = entry_of(ring[i], row_hash, numbers, hashes, ring, rows, first_leaf)
        if numbers[entry] == _FREE:
            numbers[entry], hashes[entry] = i, row_hash
    return numbers, hashes


@allocating_helper
def enlarged(numbers: Array, hashes: Array) -> tuple[Array, Array]:
    """Return a hash table of four times the size with the same entries."""
    mask = np.int64(4 * numbers.size - 1)
    larger, larger_hashes = np.full(4 * numbers.size, _FREE), np.empty(4 * numbers.size, np.uint64)
    for i in range(numbers.size):
        if numbers[i] != _FREE:
            entry = np.int64(hashes[i] & np.uint64(mask))
            while larger[entry] != _FREE:
                entry = (entry + 1) & mask
            larger[entry], larger_hashes[entry] = numbers[i], hashes[i]
    return larger, larger_hashes


@helper
def entry_of(x: Array, x_hash: Any, numbers: Array, hashes: Array, ring: Array, rows: Array, first_leaf: Array) -> Any:
    """Return the entry of the hash table that contains x, or the free entry where x belongs."""
    mask = np.int64(numbers.size - 1)  # the size is a power of two
    entry = np.int64(x_hash & np.uint64(mask))
    while numbers[entry] != _FREE:
        if hashes[entry] == x_hash and is_numbered_row(x, numbers[entry], ring, rows, first_leaf):
            return entry
        entry = (entry + 1) & mask
    return entry


@helper
def is_numbered_row(x: Array, number: int, ring: Array, rows: Array, first_leaf: Array) -> bool:
    """Return True if x is the point with this number."""
    n_ring = ring.shape[0]
    return is_same(x, ring[number]) if number < n_ring else is_same(x, rows[first_leaf[number - n_ring]])


@helper
def hash_of(x: Array, key: Any) -> Any:
    """Hash a row to 64 bits."""
    total = np.uint64(0)
    for j in range(x.size):
        total += mix_bits((x[j] ^ key) + np.uint64(j) * STEP)  # a sum, so that the CPU mixes several words at once
    return mix_bits(total)


@helper
def is_same(x: Array, other: Array) -> bool:
    """Return True if two rows are equal."""
    for j in range(x.size):
        if x[j] != other[j]:
            return False
    return True
