"""Convert mean depths and sizes to scores in (0, 1): Equation 3 of [Ma2020] and its counterpart for sizes."""

import math

from imondrian.engine.jit import Array, helper, kernel

_LOWEST_SCORE, _HIGHEST_SCORE = 2.0**-1022, 1.0 - 2.0**-53
_LARGEST_EXPONENT = 700.0  # larger exponents also give the lowest score


@helper
def score_of_depth(depth: float) -> float:
    """Convert a mean relative depth to a score: 2 ** -depth (Eq. 3), clipped to stay within (0, 1)."""
    return min(max(2.0**-depth, _LOWEST_SCORE), _HIGHEST_SCORE)


@helper
def score_of_log_size(excess: float) -> float:
    """Convert a mean excess over the typical log size to a score: 2 ** -exp(-excess), clipped like depths."""
    return score_of_depth(math.exp(min(-excess, _LARGEST_EXPONENT)))


@kernel
def depths_to_scores(depths: Array) -> None:
    """Convert mean relative depths to scores, in place."""
    for i in range(depths.size):
        depths[i] = score_of_depth(depths[i])


@kernel
def log_sizes_to_scores(excesses: Array) -> None:
    """Convert mean excesses over the typical log size to scores, in place."""
    for i in range(excesses.size):
        excesses[i] = score_of_log_size(excesses[i])
