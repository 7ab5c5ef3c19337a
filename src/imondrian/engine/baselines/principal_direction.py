"""Kernels of the oversampling principal component analysis: the first principal direction by the power method.

`experiments/baselines/principal_direction.py` has the full reference of [Yeh2009].
"""

import numpy as np

from imondrian.engine.jit import Array, helper, kernel

_TOLERANCE = 1e-12  # of the power method: largest change of a component in the last step
_MAX_STEPS = 1000
_OFFSET = 1e-6  # offset of the initial direction from the first axis


@kernel
def write_principal_directions(
    scatter: Array, rows: Array, weight: float, directions: Array, eigenvalues: Array
) -> None:
    """Write the first eigenvector of diag(scatter) + weight * row row^T and its eigenvalue, for each row.

    The first value of `scatter` must be the largest.
    """
    for i in range(rows.shape[0]):
        if weight == 0.0:
            start(directions, i, 0.0)
            eigenvalues[i] = scatter[0]
        else:
            start(directions, i, _OFFSET)
            eigenvalues[i] = power_method(scatter, rows, i, weight, directions)


@helper
def start(directions: Array, i: int, offset: float) -> None:
    """Start at the first axis, with a small offset in every other component.

    [Yeh2009] starts at the axis itself, which the power method never leaves if the row is orthogonal to it.
    """
    for j in range(directions.shape[1]):
        directions[i, j] = offset
    directions[i, 0] = 1.0


@helper
def power_method(scatter: Array, rows: Array, i: int, weight: float, directions: Array) -> float:
    """Multiply the direction by the matrix and normalize it until it converges; return the eigenvalue."""
    length = 0.0
    for _ in range(_MAX_STEPS):
        projection = 0.0
        for j in range(scatter.size):
            projection += weight * rows[i, j] * directions[i, j]
        squares = 0.0
        for j in range(scatter.size):
            squares += (scatter[j] * directions[i, j] + projection * rows[i, j]) ** 2
        length = np.sqrt(squares)
        if length == 0.0:
            break
        change = 0.0
        for j in range(scatter.size):
            component = (scatter[j] * directions[i, j] + projection * rows[i, j]) / length
            change = max(change, abs(component - directions[i, j]))
            directions[i, j] = component
        if change <= _TOLERANCE:
            break
    return length
