"""Uniform samples of rows that come in any order and in any number of places: those with the smallest keys.

Every copy of every row gets a key that hangs on its values, its tree and the seed alone, and a tree's sample are the
rows with the smallest keys (a bottom-k sketch, [Cohen2007]). So the sample is the same however the rows are spread, and
samples of parts make that of the whole. Keys are exponential: of c copies they are c independent draws, of which the
smallest ones are drawn first, in order (Renyi's representation), and no more of them than can matter.
"""

import math
from typing import Any

import numpy as np

from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.randomness import STEP, mixed, unit


@kernel
def offer_rows(lots: Array, X: Array, counts: Array, keys: Array, points: Array) -> None:
    """Offer rows, each with the number of its copies, to the sample of every tree.

    A sample is keys[t] and points[t], a heap with the largest key first; places not yet taken have the key infinity.
    A row must be offered once with all its copies: nothing tells two offers of the same row apart.
    """
    for i in range(X.shape[0]):
        offer_row(lots, X[i], counts[i], keys, points)


@helper
def offer_row(lots: Array, x: Array, n_copies: int, keys: Array, points: Array) -> None:
    """Offer copies of a row to the sample of every tree."""
    word = word_of(x)
    for t in range(lots.size):
        offer_copies(lots[t] + word, x, n_copies, keys[t], points[t])


@helper
def offer_copies(state: Any, x: Array, n_copies: int, keys: Array, points: Array) -> None:
    """Offer copies of a row to a sample, those with the smallest keys first, until one is too large."""
    key = 0.0
    for left in range(n_copies, 0, -1):
        share = unit(mixed(state))
        if share > (keys[0] - key) * left:
            return  # a logarithm would only make it larger
        key -= math.log1p(-share) / left
        if not comes_before(key, x, keys[0], points[0]):
            return
        take_place(key, x, keys, points)
        state += STEP


@helper
def word_of(x: Array) -> Any:
    """Scramble the values of a row into 64 bits; 0.0 and -0.0 are the same."""
    word = STEP
    for j in range(x.size):
        word = mixed(word ^ np.float64(x[j] + 0.0).view(np.uint64)) + STEP
    return word


@helper
def comes_before(key: float, x: Array, other_key: float, y: Array) -> bool:
    """Tell which of two rows comes first; of equal keys, which hardly ever are, the values decide."""
    if key != other_key:
        return key < other_key
    for j in range(x.size):
        if x[j] != y[j]:
            return x[j] < y[j]
    return False


@helper
def take_place(key: float, x: Array, keys: Array, points: Array) -> None:
    """Put a row in the place of the first in the heap, which leaves it."""
    place, child = 0, 1
    while child < keys.size:
        if child + 1 < keys.size and comes_before(keys[child], points[child], keys[child + 1], points[child + 1]):
            child += 1
        if not comes_before(key, x, keys[child], points[child]):
            break
        move(keys[child], points[child], place, keys, points)
        place, child = child, 2 * child + 1
    move(key, x, place, keys, points)


@helper
def move(key: float, x: Array, place: int, keys: Array, points: Array) -> None:
    """Write a row to a place."""
    keys[place] = key
    for j in range(x.size):
        points[place, j] = x[j]
