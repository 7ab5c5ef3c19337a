"""Places of categories: in each tree, a category has a random place in [0, 1), which the tree treats as a number.

A *coded* row consists of numbers, rarities and codes. It is the same for all trees. Tree t sees the *placed* row:
numbers, rarities and places, which are the coordinates that it cuts, followed by the codes, so that a leaf knows its
categories. Without categories, the two are the same row, and nothing is copied.
"""

from typing import Any

import numpy as np

from imondrian.engine.jit import Array, allocating_helper, helper, kernel
from imondrian.engine.nodes import Trees, point_index
from imondrian.engine.randomness import STEP, mix_bits, uniform_from_bits

FEATURE_STEP = np.uint64(0xD1342543DE82EF95)


@helper
def place(key: Any, code: float) -> float:
    """Hash (key, code) to a reproducible place, uniform in [0, 1); 0.0 and -0.0 are the same category."""
    return uniform_from_bits(mix_bits(key + code_word(code)))


@helper
def code_word(code: float) -> Any:
    """Return the part of the hash that is the same in all trees."""
    return np.float64(code + 0.0).view(np.uint64) * STEP


@helper
def place_key(heads: Array, t: int, k: int) -> Any:
    """Return the key of the k-th categorical feature in tree t."""
    return heads[t]["hash_key"] + np.uint64(k + 1) * FEATURE_STEP


@helper
def n_categorical(trees: Trees) -> int:
    """Return the number of categorical features."""
    return trees.points.shape[2] - trees.boxes.shape[3]


@allocating_helper
def new_placed_rows(trees: Trees, n_rows: int) -> Array:
    """Allocate space for placed rows; none without categories."""
    return np.empty((n_rows if n_categorical(trees) > 0 else 0, trees.points.shape[2]))


@allocating_helper
def new_placed_row(trees: Trees) -> Array:
    """Allocate space for one placed row; none without categories."""
    return np.empty(trees.points.shape[2] if n_categorical(trees) > 0 else 0)


@helper
def placed_row(trees: Trees, t: int, x: Array, row: Array) -> Array:
    """Return the coded row x as tree t sees it: x itself, or `row`, which is overwritten.

    Only helpers may call it: kernels count references to arrays, and this function does not.
    """
    if n_categorical(trees) == 0:
        return x
    write_placed_row(trees, t, x, row)
    return row


@allocating_helper
def placed_rows(trees: Trees, t: int, X: Array, rows: Array) -> Array:
    """Return the coded rows X as tree t sees them: X itself, or `rows`, which are overwritten."""
    if n_categorical(trees) == 0:
        return X
    for i in range(X.shape[0]):
        write_placed_row(trees, t, X[i], rows[i])
    return rows


@allocating_helper
def placed_in_all_trees(trees: Trees, x: Array) -> Array:
    """Return the coded row x as each tree sees it, one row per tree; without categories, one row for all trees."""
    if n_categorical(trees) == 0:
        return x.reshape((1, x.size))
    rows = np.empty((trees.heads.size, trees.points.shape[2]))
    for t in range(trees.heads.size):
        write_placed_row(trees, t, x, rows[t])
    return rows


@helper
def write_placed_row(trees: Trees, t: int, x: Array, row: Array) -> None:
    """Write the coded row x as tree t sees it."""
    n_codes, n_coordinates = n_categorical(trees), trees.boxes.shape[3]
    first = n_coordinates - n_codes
    for j in range(first):
        row[j] = x[j]
    for k in range(n_codes):
        row[first + k] = place(place_key(trees.heads, t, k), x[first + k])
        row[n_coordinates + k] = x[first + k]


@helper
def write_coded_row(trees: Trees, t: int, slot: int, row: Array) -> None:
    """Write the point in a leaf slot as a coded row."""
    n_codes, n_coordinates = n_categorical(trees), trees.boxes.shape[3]
    point = trees.points[point_index(trees, t, slot)]
    for j in range(n_coordinates - n_codes):
        row[j] = point[j]
    for k in range(n_codes):
        row[n_coordinates - n_codes + k] = point[n_coordinates + k]


@kernel
def write_places(trees: Trees, codes: Array, places: Array) -> None:
    """Write the place of codes[i, k], a category of the k-th categorical feature, in the first tree."""
    for i in range(codes.shape[0]):
        for k in range(codes.shape[1]):
            places[i, k] = place(place_key(trees.heads, 0, k), codes[i, k])


def coded_points(trees: Trees, points: Array) -> Array:
    """Return points of the trees (rows of `trees.points`) as coded rows."""
    n_coordinates = trees.boxes.shape[3]
    n_codes = points.shape[-1] - n_coordinates
    if n_codes == 0:
        return points
    return np.concatenate([points[..., : n_coordinates - n_codes], points[..., n_coordinates:]], axis=-1)
