"""What a tree holds of the points it is shown: all of them, or a uniform sample of bounded size.

The sample is a reservoir (Algorithm L of [Li1994]: it knows the number of the next point it will take, so that
those in between cost nothing), and stays uniform when points are forgotten: a forgotten point is owed, and the
points that come next make up for it (random pairing, [Gemulla2008]). Of copies, those in the sample are forgotten
before those outside, since nothing tells them apart: then the sample holds fewer of them than a uniform one would.
"""

import math

import numpy as np

from imondrian.engine.build import build
from imondrian.engine.extend import extend
from imondrian.engine.forget import forget
from imondrian.engine.jit import Array, helper, kernel, making_helper
from imondrian.engine.nodes import (
    NO_LIMIT,
    Trees,
    is_leaf,
    is_point_of,
    leaf_towards,
    population,
    slot_of,
    tree_population,
)
from imondrian.engine.prefetch import Ways, fetch_ways, new_ways
from imondrian.engine.randomness import distinct_numbers, exponential, uniform

_SMALLEST_KEY, _LARGEST_KEY = 1e-300, 1.0 - 2.0**-53
_LARGE = 2048  # leaves of a tree that does not stay in the cache
_ROWS_AHEAD = 16  # for which memory is asked ahead; with many more the first would be gone again


@kernel
def build_trees(trees: Trees, X: Array, weights: Array, max_samples: int) -> None:
    """Build every (empty) tree on its own sample of the rows of X."""
    for t in range(trees.heads.size):
        build(trees, t, sample(trees, t, X, max_samples), weights)


@making_helper
def sample(trees: Trees, t: int, X: Array, max_samples: int) -> Array:
    """Show the rows of X to the empty tree t, and give those it takes."""
    show(trees, t, X.shape[0], max_samples)
    if X.shape[0] < max_samples:
        return X
    rows = distinct_numbers(trees.heads, t, X.shape[0], max_samples)
    points = np.empty((max_samples, X.shape[1]))
    for i in range(max_samples):
        for j in range(X.shape[1]):
            points[i, j] = X[rows[i], j]
    return points


@kernel
def build_on_samples(trees: Trees, samples: Array, n_points: int, weights: Array, max_samples: int) -> None:
    """Build every (empty) tree t on samples[t], which has been drawn elsewhere from n_points points."""
    for t in range(trees.heads.size):
        show(trees, t, n_points, max_samples)
        build(trees, t, samples[t], weights)


@helper
def show(trees: Trees, t: int, n_points: int, max_samples: int) -> None:
    """Note that the empty tree t is shown so many points, of which it takes its sample."""
    trees.heads[t]["n_points"] = n_points
    if n_points >= max_samples:
        start_reservoir(trees, t, max_samples)


@helper
def start_reservoir(trees: Trees, t: int, max_samples: int) -> None:
    """Draw the state of a reservoir that has just been shown n_points, and is full.

    Were each point given a uniform key, and those with the smallest kept, the largest key kept would be the
    max_samples-th of n_points order statistics; the sum is Renyi's representation of it.
    """
    n = trees.heads[t]["n_points"]
    total = 0.0
    for i in range(max_samples):
        total += exponential(trees.heads, t) / (n - i)
    trees.heads[t]["log_key"] = math.log(max(-math.expm1(-total), _SMALLEST_KEY))
    trees.heads[t]["next_kept"] = n
    pass_over(trees, t)


@helper
def pass_over(trees: Trees, t: int) -> None:
    """Draw the number of the next point whose key is below the largest one kept."""
    rate = -math.log1p(-min(math.exp(trees.heads[t]["log_key"]), _LARGEST_KEY))
    n_points = exponential(trees.heads, t) / rate if rate > 0.0 else float(NO_LIMIT)
    furthest = max(float(NO_LIMIT) - trees.heads[t]["next_kept"], 0.0)
    trees.heads[t]["next_kept"] += 1 + int(min(n_points, furthest))


@helper
def lower_key(trees: Trees, t: int, max_samples: int) -> None:
    """Draw the largest key kept, now that a point has come in with a smaller one and another is out."""
    trees.heads[t]["log_key"] -= exponential(trees.heads, t) / max_samples


@kernel
def extend_trees(trees: Trees, X: Array, weights: Array, max_samples: int) -> None:
    """Show the rows of X to every tree, one after the other, row i with the feature weights weights[i]."""
    ways = new_ways(_ROWS_AHEAD)
    for t in range(trees.heads.size):
        i, fetched = 0, 0
        while i < X.shape[0]:
            if i >= fetched and max_samples == NO_LIMIT and trees.heads[t]["n_leaves"] > _LARGE:
                fetched = fetch_ahead(trees, t, X, i, ways)
            idle = min(n_passed_over(trees, t, max_samples), X.shape[0] - i)
            trees.heads[t]["n_points"] += idle
            i += idle
            if i < X.shape[0]:
                if takes_next(trees, t, max_samples):
                    extend(trees, t, X[i], weights[i])
                i += 1


@helper
def fetch_ahead(trees: Trees, t: int, X: Array, first: int, ways: Ways) -> int:
    """Ask for what some rows from one on will come by in a tree too large for the cache; give where they end."""
    n_rows = min(ways.rows.size, X.shape[0] - first)
    for i in range(n_rows):
        ways.trees[i], ways.rows[i] = t, first + i
    fetch_ways(trees, X, ways, n_rows)
    return first + n_rows


@helper
def n_passed_over(trees: Trees, t: int, max_samples: int) -> int:
    """Count the coming points that tree t will certainly not take."""
    head = trees.heads[t]
    if head["n_owed"] > 0 or head["n_points"] < max_samples:
        return 0
    return max(head["next_kept"] - head["n_points"] - 1, 0)


@helper
def takes_next(trees: Trees, t: int, max_samples: int) -> bool:
    """Tell whether tree t takes the coming point; if so there is room for it, another having been let go."""
    head = trees.heads[t]
    if head["n_owed"] > 0:
        head["n_points"] += 1
        return fills_vacancy(trees, t, max_samples)
    head["n_points"] += 1
    if head["n_points"] == max_samples:
        start_reservoir(trees, t, max_samples)
    elif head["n_points"] > max_samples:
        if head["n_points"] < head["next_kept"]:
            return False
        forget(trees, t, random_leaf(trees, t))
        lower_key(trees, t, max_samples)
        pass_over(trees, t)
    return True


@helper
def fills_vacancy(trees: Trees, t: int, max_samples: int) -> bool:
    """Pay off one forgotten point; draw whether it was one of the sample, so that the new one takes its place."""
    head = trees.heads[t]
    n_vacancies = min(max_samples, head["n_points"] - 1 + head["n_owed"]) - tree_population(trees, t)
    filled = uniform(trees.heads, t) * head["n_owed"] < n_vacancies
    head["n_owed"] -= 1
    return filled


@helper
def random_leaf(trees: Trees, t: int) -> int:
    """Draw a leaf in proportion to its copies: a point of the tree, uniformly."""
    rank = int(uniform(trees.heads, t) * tree_population(trees, t))
    node = trees.heads[t]["root"]
    while not is_leaf(node):
        cut = trees.cuts[t, slot_of(node)]
        n_left = int(population(trees, t, cut["left"]))
        if rank < n_left:
            node = cut["left"]
        else:
            rank -= n_left
            node = cut["right"]
    return node


@kernel
def forget_points(trees: Trees, X: Array) -> None:
    """Forget the rows of X in every tree; one that a tree did not take only lowers the number it stands for."""
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            if trees.heads[t]["n_leaves"] > 0:
                leaf = leaf_towards(trees, t, X[i])
                if is_point_of(trees, t, leaf, X[i]):
                    forget(trees, t, leaf)
            trees.heads[t]["n_points"] -= 1
            trees.heads[t]["n_owed"] += 1


@helper
def n_copies(trees: Trees, t: int, x: Array) -> int:
    """Count the copies of x that tree t holds."""
    if trees.heads[t]["n_leaves"] == 0:
        return 0
    leaf = leaf_towards(trees, t, x)
    return int(trees.copies[t, slot_of(leaf)]) if is_point_of(trees, t, leaf, x) else 0


@kernel
def copies_held(trees: Trees, X: Array, held: Array) -> None:
    """Write into held[t, i] how many copies of row i tree t holds."""
    for t in range(trees.heads.size):
        for i in range(X.shape[0]):
            held[t, i] = n_copies(trees, t, X[i])
