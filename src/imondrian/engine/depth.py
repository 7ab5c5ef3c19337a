"""The path length of a point: Algorithm 3 of [Ma2020]."""

from imondrian.engine.harmonic import average_path_length, relative_depth
from imondrian.engine.jit import Array, helper, kernel
from imondrian.engine.nodes import Trees, child_towards, is_leaf, slot_of, tree_population


@helper
def path_length(trees: Trees, t: int, x: Array) -> float:
    """Count the edges from the root to the leaf of x.

    Algorithm 3 of [Ma2020]. Differs: it ends, at the leaf, and adds c(k) for a leaf of k copies, as iForest does.
    """
    node, depth = trees.heads[t]["root"], 0
    while not is_leaf(node):
        node = child_towards(trees, t, node, x)
        depth += 1
    return depth + average_path_length(trees.copies[t, slot_of(node)])


@kernel
def add_depths(trees: Trees, X: Array, sums: Array) -> None:
    """Add to each row's sum its path length relative to c(n) in every tree, n the points that the tree holds."""
    for t in range(trees.heads.size):
        n = tree_population(trees, t)
        average = average_path_length(n)
        for i in range(X.shape[0]):
            sums[i] += relative_depth(path_length(trees, t, X[i]) if n > 1 else 0.0, average)
