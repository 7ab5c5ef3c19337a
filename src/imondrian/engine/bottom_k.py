"""Uniform samples of rows that arrive in any order and on any number of machines: the rows with the smallest keys.

Every copy of every row gets a random key of its own. The keys of the copies of a row depend only on the row's values,
the number of copies, the tree and the seed. A tree's sample consists of the rows with the smallest keys (a bottom-k
sketch, [Cohen2007]). The sample is therefore the same however the rows are distributed, and the samples of partitions
determine that of the whole. Keys are exponential: the keys of c copies are c independent draws, made in ascending order
(Renyi's representation) until one is too large for the sample.
"""

import math
from typing import Any

import numpy as np

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.randomness import STEP, mix_bits, uniform_from_bits


@kernel
def offer_rows(tree_keys: Array, X: Array, counts: Array, keys: Array, points: Array) -> None:
    """Offer rows, each with the number of its copies, to the sample of every tree.

    A sample is keys[t] and points[t], a heap with the largest key first; free entries have the key infinity.
    A row must be offered once with all its copies: a second offer of the same row would repeat the same keys.
    """
    for i in range(X.shape[0]):
        offer_row(tree_keys, X[i], counts[i], keys, points)


@helper
def offer_row(tree_keys: Array, x: Array, n_copies: int, keys: Array, points: Array) -> None:
    """Offer copies of a row to the sample of every tree."""
    row_hash = hash_row(x)
    for t in range(tree_keys.size):
        offer_copies(tree_keys[t] + row_hash, x, n_copies, keys[t], points[t])


@helper
def offer_copies(state: Any, x: Array, n_copies: int, keys: Array, points: Array) -> None:
    """Offer copies of a row to a sample in ascending order of their keys, up to the first that is too large."""
    key = 0.0
    for n_left in range(n_copies, 0, -1):
        u = uniform_from_bits(mix_bits(state))
        if u > (keys[0] - key) * n_left:
            return  # too large even without the logarithm: -log(1 - u) is at least u
        key -= math.log1p(-u) / n_left
        if not comes_before(key, x, keys[0], points[0]):
            return
        replace_largest(key, x, keys, points)
        state += STEP


@helper
def hash_row(x: Array) -> Any:
    """Hash the values of a row to 64 bits; 0.0 and -0.0 count as equal."""
    row_hash = STEP
    for j in range(x.size):
        row_hash = mix_bits(row_hash ^ np.float64(x[j] + 0.0).view(np.uint64)) + STEP
    return row_hash


@helper
def comes_before(key: float, x: Array, other_key: float, y: Array) -> bool:
    """Return True if the first row precedes the second, by key and then by values (equal keys are extremely rare)."""
    if key != other_key:
        return key < other_key
    for j in range(x.size):
        if x[j] != y[j]:
            return x[j] < y[j]
    return False


@helper
def replace_largest(key: float, x: Array, keys: Array, points: Array) -> None:
    """Replace the row with the largest key, the root of the heap."""
    position, child = 0, 1
    while child < keys.size:
        if child + 1 < keys.size and comes_before(keys[child], points[child], keys[child + 1], points[child + 1]):
            child += 1
        if not comes_before(key, x, keys[child], points[child]):
            break
        write_entry(keys[child], points[child], position, keys, points)
        position, child = child, 2 * child + 1
    write_entry(key, x, position, keys, points)


@helper
def write_entry(key: float, x: Array, position: int, keys: Array, points: Array) -> None:
    """Write a row to a position of the heap."""
    keys[position] = key
    for j in range(x.size):
        points[position, j] = x[j]
