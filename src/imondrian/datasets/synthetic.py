"""The paper's four synthetic sets in the plane: inliers of some shape, and outliers uniform over a square.

[Ma2020] shows plots of them and gives their sizes ("Dataset (a) has 255 and the rest of datasets have 100 inliers while
the number of outliers are 45"), but does not say how the points were drawn. The sets look like those of scikit-learn's
example "Comparing anomaly detection algorithms for outlier detection on toy datasets", whose shapes, scale and square
are used here. In the sets with two blobs each blob has 50 inliers: the paper gives 100 in total, and the example
divides them equally.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np

from imondrian.base.errors import InvalidInputError
from imondrian.datasets.dataset import Dataset
from imondrian.engine.jit import Array

N_OUTLIERS = 45
HALF_SIDE = 6.0  # of the square of the outliers, whose centre is the origin
_N_MOON_INLIERS, _N_BLOB_INLIERS = 255, 100
_CENTRES = ((2.0, 2.0), (-2.0, -2.0))


def make_synthetic(name: str, seed: int = 0) -> Dataset:
    """Draw one of the paper's synthetic sets, its rows in random order.

    Parameters
    ----------
    name : {"moons", "blob", "two-blobs", "unequal-blobs"}
        The paper's sets (a) to (d): two moons; a blob of standard deviation 0.5; two such blobs; two blobs of standard
        deviations 1.5 and 0.3.
    seed : int, default=0
        The same seed gives the same points.

    Returns
    -------
    Dataset
        255 (moons) or 100 inliers, and 45 outliers.

    Examples
    --------
    >>> moons = make_synthetic("moons", seed=7)
    >>> moons.X.shape, int(moons.y.sum())
    ((300, 2), 45)
    """
    if name not in SYNTHETIC:
        near = get_close_matches(str(name), SYNTHETIC, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidInputError(
            f"The name of a synthetic set must be one of {', '.join(SYNTHETIC)}, but is {name!r}.{hint}"
        )
    index = list(SYNTHETIC).index(name)  # for different random numbers in each set
    rng = np.random.default_rng((_check_seed(seed), index))
    inliers = SYNTHETIC[name](rng)
    outliers = rng.uniform(-HALF_SIDE, HALF_SIDE, (N_OUTLIERS, 2))
    order = rng.permutation(len(inliers) + N_OUTLIERS)
    labels = np.repeat(np.array([0, 1], dtype=np.uint8), [len(inliers), N_OUTLIERS])
    return Dataset(name, np.concatenate([inliers, outliers])[order], labels[order], ("x", "y"), None)


def moons(rng: np.random.Generator) -> Array:
    """Draw two interleaving half circles of radius 4, with noise of standard deviation 0.2."""
    n_upper = _N_MOON_INLIERS // 2
    upper, lower = np.linspace(0.0, np.pi, n_upper), np.linspace(0.0, np.pi, _N_MOON_INLIERS - n_upper)
    circles = np.concatenate(
        [
            np.column_stack([np.cos(upper), np.sin(upper)]),
            np.column_stack([1.0 - np.cos(lower), 0.5 - np.sin(lower)]),
        ]
    )
    noise = rng.normal(0.0, 0.05, circles.shape)
    return 4.0 * (circles + noise - np.array([0.5, 0.25]))


def blob(rng: np.random.Generator) -> Array:
    """Draw a blob of standard deviation 0.5."""
    return rng.normal(0.0, 0.5, (_N_BLOB_INLIERS, 2))


def two_blobs(rng: np.random.Generator) -> Array:
    """Draw two blobs of standard deviation 0.5."""
    return _blobs(rng, (0.5, 0.5))


def unequal_blobs(rng: np.random.Generator) -> Array:
    """Draw a wide blob and a narrow one."""
    return _blobs(rng, (1.5, 0.3))


SYNTHETIC: dict[str, Callable[[np.random.Generator], Array]] = {
    "moons": moons,
    "blob": blob,
    "two-blobs": two_blobs,
    "unequal-blobs": unequal_blobs,
}


def _blobs(rng: np.random.Generator, deviations: tuple[float, float]) -> Array:
    n_each = _N_BLOB_INLIERS // len(_CENTRES)
    parts = [rng.normal(centre, sd, (n_each, 2)) for centre, sd in zip(_CENTRES, deviations, strict=True)]
    return np.concatenate(parts)


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(f"seed must be an int of at least 0, but is {seed!r}.")
    return int(seed)
