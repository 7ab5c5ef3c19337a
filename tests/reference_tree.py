"""A slow, simple Mondrian tree, written from the text of [Ma2020] and, where the paper is silent, from our decisions.

Random draws come from an object with the methods `exponential(rate)`, `choice(sizes)` and `between(low, high)`. Its two
hooks `descend()` and `survive(rate, duration)` serve the variant of the engine, which has one exponential clock per
descent; Algorithm 5 itself does not need them.
"""

import math
from dataclasses import dataclass, field

import numpy as np

LARGEST = np.finfo(float).max  # a time that overflows becomes this value


@dataclass
class Node:
    lower: np.ndarray
    upper: np.ndarray
    population: int
    time: float = math.inf
    split_dim: int = -1
    split_val: float = math.nan
    children: list["Node"] = field(default_factory=list)

    def child_of(self, x):
        return self.children[0] if x[self.split_dim] < self.split_val else self.children[1]


def total(sizes):
    result = 0.0
    for size in sizes:
        result += float(size)
    return result


def build(points, time_of_parent, draws):
    """Algorithm 2; the copies of a point are one leaf."""
    lower, upper = points.min(axis=0), points.max(axis=0)
    if (lower == upper).all():
        return Node(lower, upper, len(points))
    time = min(time_of_parent + draws.exponential(total(upper - lower)), LARGEST)
    q = draws.choice(upper - lower)
    p = draws.between(lower[q], upper[q])
    goes_left = points[:, q] < p
    left = build(points[goes_left], time, draws)
    right = build(points[~goes_left], time, draws)
    return Node(lower, upper, len(points), time, q, p, [left, right])


def extended(root, x, draws):
    """Algorithm 4 for one tree; return the new root."""
    draws.descend()
    return _extended(root, x, 0.0, draws)


def _extended(node, x, time_of_parent, draws):
    """Algorithm 5; return the node that replaces `node`."""
    error_lower = np.maximum(node.lower - x, 0.0)
    error_upper = np.maximum(x - node.upper, 0.0)
    errors = error_lower + error_upper
    rate = total(errors)
    time = min(time_of_parent + draws.exponential(rate), LARGEST) if rate > 0.0 else math.inf
    if time < node.time:
        return _with_new_parent(node, x, time, errors, draws)
    draws.survive(rate, node.time - time_of_parent)
    node.lower, node.upper = np.minimum(node.lower, x), np.maximum(node.upper, x)
    node.population += 1
    if node.children:
        side = 0 if x[node.split_dim] < node.split_val else 1
        node.children[side] = _extended(node.children[side], x, node.time, draws)
    return node


def _with_new_parent(node, x, time, errors, draws):
    q = draws.choice(errors)
    leaf = Node(x, x, 1)
    if x[q] > node.upper[q]:
        p, children = draws.between(node.upper[q], x[q]), [node, leaf]
    else:
        p, children = draws.between(x[q], node.lower[q]), [leaf, node]
    lower, upper = np.minimum(node.lower, x), np.maximum(node.upper, x)
    return Node(lower, upper, node.population + 1, time, q, p, children)


def path_length(node, x, length=0):
    """Algorithm 3; a leaf of k copies adds c(k)."""
    if not node.children:
        return length + c(node.population)
    return path_length(node.child_of(x), x, length + 1)


def c(n):
    """Equation 1, with exact harmonic numbers."""
    return 2.0 * math.fsum(1.0 / i for i in range(1, n)) - 2.0 * (n - 1) / n if n > 1 else 0.0


class IndependentDraws:
    """Draws as in the paper: an independent exponential at every node."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def exponential(self, rate):
        return self.rng.exponential() / rate

    def choice(self, sizes):
        return int(self.rng.choice(len(sizes), p=sizes / sizes.sum()))

    def between(self, low, high):
        return high - self.rng.random() * (high - low)

    def descend(self):
        pass

    def survive(self, rate, duration):
        pass


class ScriptedDraws:
    """The draws that a tree of the engine makes: SplitMix64, and one exponential clock per descent."""

    def __init__(self, stream):
        self.stream = int(stream)
        self.clock = None

    def uniform(self):
        self.stream = (self.stream + 0x9E3779B97F4A7C15) % 2**64
        word = self.stream
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return ((word ^ (word >> 31)) >> 11) * 2.0**-53

    def unit_exponential(self):
        return -math.log(1.0 - self.uniform())

    def descend(self):
        self.clock = self.unit_exponential()

    def survive(self, rate, duration):
        if rate > 0.0:
            self.clock -= rate * duration

    def exponential(self, rate):
        clock = self.unit_exponential() if self.clock is None else self.clock
        with np.errstate(over="ignore"):
            return float(np.float64(clock) / rate)

    def choice(self, sizes):
        mass = self.uniform() * total(sizes)
        for j, size in enumerate(sizes):
            if size > 0.0:
                mass -= float(size)
                if mass < 0.0:
                    return j
        return int(np.flatnonzero(sizes > 0.0)[-1])

    def between(self, low, high):
        p = high - self.uniform() * (high - low)
        return p if low < p <= high else high
