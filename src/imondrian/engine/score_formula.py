"""From mean depths and sizes to scores in (0, 1): Equation 3 of [Ma2020], and its counterpart for sizes."""

import math

from imondrian.engine.jit import Array, helper, kernel

_LOWEST_SCORE, _HIGHEST_SCORE = 2.0**-1022, 1.0 - 2.0**-53
_LARGEST_EXPONENT = 700.0  # beyond, the score is the lowest anyway


@helper
def score_of_depth(depth: float) -> float:
    """Turn a mean relative depth into a score: 2 to the minus depth (Eq. 3), kept inside (0, 1)."""
    return min(max(2.0**-depth, _LOWEST_SCORE), _HIGHEST_SCORE)


@helper
def score_of_log_size(excess: float) -> float:
    """Turn a mean log size over the level into a score: 2 to the minus exp of the minus, kept inside (0, 1)."""
    return score_of_depth(math.exp(min(-excess, _LARGEST_EXPONENT)))


@kernel
def make_scores_of_depths(depths: Array) -> None:
    """Turn mean relative depths into scores, in place."""
    for i in range(depths.size):
        depths[i] = score_of_depth(depths[i])


@kernel
def make_scores_of_log_sizes(excesses: Array) -> None:
    """Turn mean log sizes over the level into scores, in place."""
    for i in range(excesses.size):
        excesses[i] = score_of_log_size(excesses[i])
