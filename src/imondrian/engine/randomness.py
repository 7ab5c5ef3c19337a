"""All random draws: each tree has its own 64-bit SplitMix stream, stored in the tree's head."""

import math
from typing import Any

import numpy as np

from imondrian.engine.jit import Array, allocating_helper, helper, kernel

STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53
LARGEST = np.finfo(np.float64).max


@kernel
def start_streams(heads: Array, seed: np.uint64) -> None:
    """Initialize the stream of every tree, which depends only on the seed and the tree's number."""
    for t in range(heads.size):
        heads[t]["stream"] = seed
        origin = next_word(heads, t)
        heads[t]["stream"] = origin + np.uint64(t) * STEP
        heads[t]["stream"] = next_word(heads, t)
        heads[t]["hash_key"] = mix_bits(heads[t]["stream"])


@helper
def next_word(heads: Array, t: int) -> int:
    """Advance the stream of tree t and return 64 random bits (SplitMix64)."""
    heads[t]["stream"] += STEP
    return mix_bits(heads[t]["stream"])


@helper
def mix_bits(word: Any) -> Any:
    """Mix 64 bits (the finalizer of SplitMix64)."""
    word = (word ^ (word >> _30)) * _FIRST_FACTOR
    word = (word ^ (word >> _27)) * _SECOND_FACTOR
    return word ^ (word >> _31)


@helper
def uniform(heads: Array, t: int) -> float:
    """Draw a uniform number from [0, 1)."""
    return uniform_from_bits(next_word(heads, t))


@helper
def uniform_from_bits(word: Any) -> float:
    """Convert 64 random bits to a uniform number in [0, 1)."""
    return uniform_from_integer(integer_from_bits(word))


@helper
def integer_from_bits(word: Any) -> Any:
    """Return the 53 random bits from which `uniform_from_bits` makes a uniform number."""
    return word >> _11


@helper
def uniform_from_integer(integer: Any) -> float:
    """Convert an integer below 2**53 to a number in [0, 1); the order is the same."""
    return float(integer) * _UNIT


@helper
def hashed_uniform(heads: Array, t: int, number: int) -> float:
    """Hash (tree, number) to a reproducible uniform number in [0, 1)."""
    return uniform_from_bits(mix_bits(heads[t]["hash_key"] + np.uint64(number + 1) * STEP))


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
def draw_feature(heads: Array, t: int, sizes: Array, weights: Array, total: float) -> int:
    """Draw feature j with probability weights[j] * sizes[j] / total; never one of size 0."""
    mass = uniform(heads, t) * total
    last = 0
    for j in range(weights.size):
        if sizes[j] > 0.0:
            last = j
            mass -= weights[j] * sizes[j]
            if mass < 0.0:
                return j
    return last  # reached by rounding errors, or if all rates underflow to 0


@helper
def total_rate(sizes: Array, weights: Array) -> float:
    """Return the sum of the rates of all features, limited to the largest float."""
    total = 0.0
    for j in range(sizes.size):
        total += weights[j] * sizes[j]
    return min(total, LARGEST)


@helper
def time_after(time: float, clock: float, rate: float, latest: float) -> float:
    """Return the time when an Exp(1) clock, started at `time` and running at this rate, expires; at most `latest`."""
    return min(time + clock / rate, latest) if rate > 0.0 else latest


@allocating_helper
def sample_without_replacement(heads: Array, t: int, n: int, k: int) -> Array:
    """Draw k different integers below n, every set of k with equal probability (Floyd's algorithm)."""
    chosen = np.empty(k, np.int64)
    n_entries = 4
    while n_entries < 4 * k:
        n_entries *= 2
    table = np.zeros(n_entries, np.int64)  # a hash table: 0, or a chosen number + 1
    for i in range(k):
        largest = n - k + i
        number = int(uniform(heads, t) * (largest + 1))
        if not insert_if_new(table, number + 1):
            number = largest
            insert_if_new(table, number + 1)
        chosen[i] = number
    return chosen


@helper
def insert_if_new(table: Array, number: int) -> bool:
    """Insert a positive number into the hash table; return False if it is already there."""
    mask = table.size - 1  # the size is a power of two
    i = (number * 0x9E3779B1) & mask
    while table[i] != 0:
        if table[i] == number:
            return False
        i = (i + 1) & mask
    table[i] = number
    return True
