"""Every random draw of a tree: one 64-bit SplitMix stream per tree, kept in the state beside its nodes."""

import math
from typing import Any

import numpy as np

from imondrian.engine.jit import Array, helper, kernel, making_helper

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53
LARGEST = np.finfo(np.float64).max


@kernel
def start_streams(heads: Array, seed: np.uint64) -> None:
    """Start the stream of every tree: it depends on the seed and on the tree's number alone."""
    for t in range(heads.size):
        heads[t]["stream"] = seed
        origin = next_word(heads, t)
        heads[t]["stream"] = origin + np.uint64(t) * STEP
        heads[t]["stream"] = next_word(heads, t)
        heads[t]["lot"] = mixed(heads[t]["stream"])


@helper
def next_word(heads: Array, t: int) -> int:
    """Advance the stream of tree t and return 64 random bits (SplitMix64)."""
    heads[t]["stream"] += STEP
    return mixed(heads[t]["stream"])


@helper
def mixed(word: Any) -> Any:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    word = (word ^ (word >> _30)) * _FIRST_FACTOR
    word = (word ^ (word >> _27)) * _SECOND_FACTOR
    return word ^ (word >> _31)


@helper
def uniform(heads: Array, t: int) -> float:
    """Draw from [0, 1)."""
    return unit(next_word(heads, t))


@helper
def unit(word: Any) -> float:
    """Make 64 random bits a number in [0, 1)."""
    return float(word >> _11) * _UNIT


@helper
def lot_of(heads: Array, t: int, number: int) -> float:
    """Give a number in [0, 1) that hangs on tree t and a whole number alone: the same whenever it is asked for."""
    return unit(mixed(heads[t]["lot"] + np.uint64(number + 1) * STEP))


@helper
def exponential(heads: Array, t: int) -> float:
    """Draw from Exp(1)."""
    return -math.log(1.0 - uniform(heads, t))


@helper
def value_in_gap(heads: Array, t: int, low: float, high: float) -> float:
    """Draw p with low < p <= high, so that `x < p` sends low left and high right."""
    p = high - uniform(heads, t) * (high - low)
    return p if low < p <= high else high  # rounding may land outside the gap


@helper
def feature_by_rate(heads: Array, t: int, sizes: Array, weights: Array, total: float) -> int:
    """Draw a feature j with probability weights[j] * sizes[j] / total, and never one of size 0."""
    mass = uniform(heads, t) * total
    last = 0
    for j in range(sizes.size):
        if sizes[j] > 0.0:
            last = j
            mass -= weights[j] * sizes[j]
            if mass < 0.0:
                return j
    return last  # rounding, or rates so small that they vanish


@helper
def total_rate(sizes: Array, weights: Array) -> float:
    """Sum the rates of all features; an overflow counts as the largest number."""
    total = 0.0
    for j in range(sizes.size):
        total += weights[j] * sizes[j]
    return min(total, LARGEST)


@helper
def time_after(time: float, clock: float, rate: float, latest: float) -> float:
    """Tell when an Exp(1) clock that runs at this rate from `time` on rings, `latest` at the latest."""
    return min(time + clock / rate, latest) if rate > 0.0 else latest


@making_helper
def distinct_numbers(heads: Array, t: int, n: int, k: int) -> Array:
    """Draw k different numbers below n, every set of k with the same probability (Floyd's algorithm)."""
    chosen = np.empty(k, np.int64)
    n_places = 4
    while n_places < 4 * k:
        n_places *= 2
    places = np.zeros(n_places, np.int64)  # a hash table: 0, or a chosen number + 1
    for i in range(k):
        largest = n - k + i
        number = int(uniform(heads, t) * (largest + 1))
        if not entered(places, number + 1):
            number = largest
            entered(places, number + 1)
        chosen[i] = number
    return chosen


@helper
def entered(places: Array, entry: int) -> bool:
    """Enter a positive number into the hash table; tell whether it was new."""
    last = places.size - 1  # the size is a power of two
    place = (entry * 0x9E3779B1) & last
    while places[place] != 0:
        if places[place] == entry:
            return False
        place = (place + 1) & last
    places[place] = entry
    return True
