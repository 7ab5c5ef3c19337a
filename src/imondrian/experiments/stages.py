"""Divisions of a set into five stratified stages."""

import numpy as np
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from imondrian.datasets import Dataset
from imondrian.engine.jit import Array

N_STAGES = 5
_PUBLISHED_SEED = 10


def published_stages(data: Dataset) -> list[Array]:
    """Divide a set as the authors' published scripts do, in the one division behind Table III.

    A fifth of all rows is drawn by lot from those that are left, four times over, with one and the same seed; the last
    stage is the rest. (The classes are in the order of those scripts, anomalies first, on which the lot depends.)
    """
    is_normal, left, stages = data.y == 0, np.arange(len(data.y)), []
    lot = StratifiedShuffleSplit(n_splits=1, test_size=len(data.y) // N_STAGES, random_state=_PUBLISHED_SEED)
    for _ in range(N_STAGES - 1):
        others, stage = next(lot.split(data.X[left], is_normal[left]))
        stages.append(left[stage])
        left = left[others]
    return [*stages, left]


def drawn_stages(data: Dataset, seed: int) -> list[Array]:
    """Divide a set into five parts with equal shares of anomalies, their rows in random order."""
    rng = np.random.default_rng(seed)
    division = StratifiedKFold(N_STAGES, shuffle=True, random_state=seed).split(data.X, data.y)
    return [rng.permutation(part) for _, part in division]
