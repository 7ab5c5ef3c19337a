"""The average path length c(n) of a tree of n points: Equations 1 and 2 of [Ma2020]."""

import math

from imondrian.engine.jit import helper

_EULER = 0.57721566490153286
_SMALL = 32


@helper
def harmonic_number(n: int) -> float:
    """Return the sum of 1/i for i = 1..n.

    Unlike Eq. 2, ln(n) + 0.5772, it is exact up to rounding, so that c(2) = 1 instead of 0.154.
    """
    if n < _SMALL:
        total = 0.0
        for i in range(1, n + 1):
            total += 1.0 / i
        return total
    square = 1.0 / (float(n) * float(n))
    tail = square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0 - square / 240.0)))
    return math.log(n) + _EULER + 0.5 / n - tail


@helper
def average_path_length(n: int) -> float:
    """Return c(n) (Eq. 1); 0 for fewer than two points."""
    return 2.0 * harmonic_number(n - 1) - 2.0 * (n - 1) / n if n > 1 else 0.0


@helper
def relative_depth(depth: float, average: float) -> float:
    """Return depth / average; 1, the value of an average point, if the average is 0 (a tree that splits nothing)."""
    return depth / average if average > 0.0 else 1.0
