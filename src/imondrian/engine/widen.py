"""Add coordinates to all points of the trees, as if they had always been there."""

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.nodes import Trees
from imondrian.engine.places import write_places


def widened(trees: Trees, n_numbers: int, codes: Array, rarity: float) -> Trees:
    """Return a copy of the trees whose points have more features, each with the same value in all points.

    Parameters
    ----------
    trees : Trees
        The trees.
    n_numbers : int
        Number of new numeric features; their values are 0.
    codes : array
        Code of each new categorical feature.
    rarity : float
        Rarity of the new categories.
    """
    n_old = trees.points.shape[2] - trees.boxes.shape[3]
    sizes = [trees.boxes.shape[3] - 2 * n_old, n_old, n_old, n_old]  # numbers, rarities, places, codes
    new_sizes = [n_numbers, codes.size, codes.size, codes.size]
    added = np.zeros((trees.heads.size, sum(new_sizes)))  # the new values of each tree, in this order
    for t in range(trees.heads.size):
        tree = Trees(*(array[t : t + 1] for array in trees))
        places = np.empty((1, n_old + codes.size))
        write_places(tree, np.concatenate([np.zeros(n_old), codes])[None], places)
        added[t] = np.concatenate([np.zeros(n_numbers), np.full(codes.size, rarity), places[0, n_old:], codes])
    points = _with_values(trees.points, sizes, added, new_sizes)
    boxes = _with_values(trees.boxes, sizes[:3], added[:, : sum(new_sizes[:3])], new_sizes[:3])
    n_leaves = trees.heads["n_leaves"]
    slots = np.arange(trees.cuts.shape[1])
    # unused slots are zero; if growing was interrupted, the arrays differ in length
    points[np.arange(points.shape[1]) >= n_leaves[:, None]] = 0.0
    boxes[np.arange(boxes.shape[1]) >= n_leaves[:, None] - 1] = 0.0
    cuts, feature = trees.cuts.copy(), trees.cuts["split_feature"]
    cuts["split_feature"] += np.uint32(n_numbers) * (feature >= sizes[0])
    cuts["split_feature"] += np.uint32(codes.size) * (feature >= sizes[0] + n_old)
    cuts["split_feature"][slots >= n_leaves[:, None] - 1] = 0
    copies = {name: getattr(trees, name).copy() for name in ("copies", "parents", "heads")}
    return trees._replace(cuts=cuts, boxes=boxes, points=points, **copies)


def _with_values(array: Array, sizes: list[int], added: Array, new_sizes: list[int]) -> Array:
    """Insert the new values of each tree after each part of the last axis; `sizes` are the sizes of the parts."""
    shape = array.shape[:-1]
    parts, end, new_end = [], 0, 0
    for size, new_size in zip(sizes, new_sizes, strict=True):
        new = added[:, new_end : new_end + new_size].reshape(shape[0], *[1] * (len(shape) - 1), new_size)
        parts += [array[..., end : end + size], np.broadcast_to(new, (*shape, new_size))]
        end, new_end = end + size, new_end + new_size
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))
