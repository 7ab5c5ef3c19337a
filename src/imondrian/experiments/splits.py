"""How rows are divided: into folds of a batch, and into stages of a stream."""

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from imondrian.datasets import Dataset
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.experiments.paper_results import STAGES

N_FOLDS, N_STAGES = 10, len(STAGES)
FEWER_FOLDS = {"wine": 2}  # too few anomalies for ten
_FOLDS_SEED, _STAGES_SEED = 100, 10
Split = tuple[Array, Array]  # rows to fit on, rows to test


def n_folds_of(data: Dataset, n_folds: int) -> int:
    """Give the number of folds of a set, which must not be more than it has anomalies."""
    n_folds = min(n_folds, FEWER_FOLDS.get(data.name, n_folds))
    n_rarer = int(min(data.y.sum(), (data.y == 0).sum()))
    if n_folds > n_rarer:
        raise InvalidInputError(
            f"The data set {data.name} has {n_rarer} rows of its rarer kind, too few for {n_folds} folds."
        )
    return n_folds


def published_folds(data: Dataset, n_folds: int) -> list[Split]:
    """Divide a set into the folds behind Table II.

    The paper does not say how they were drawn. Methods that draw no lots have the figures of the paper, deviations
    included, in shuffled folds that are not stratified, with this seed. Where such a fold would have rows of one kind
    only (none of the paper's has), folds are stratified.
    """
    folds = list(KFold(n_folds, shuffle=True, random_state=_FOLDS_SEED).split(data.X))
    if all(0 < data.y[test].sum() < len(test) for _, test in folds):
        return folds
    return stratified_folds(data, n_folds, _FOLDS_SEED)


def stratified_folds(data: Dataset, n_folds: int, seed: int) -> list[Split]:
    """Divide a set into other folds, with equal shares of anomalies."""
    return list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(data.X, data.y))


def published_stages(data: Dataset) -> list[Array]:
    """Divide a set as the authors' published scripts do, in the one division behind Table III.

    A fifth of all rows is drawn by lot from those that are left, four times over, with one and the same seed; the last
    stage is the rest. (The classes are in the order of those scripts, anomalies first, on which the lot depends.)
    """
    is_normal, left, stages = data.y == 0, np.arange(len(data.y)), []
    lot = StratifiedShuffleSplit(n_splits=1, test_size=len(data.y) // N_STAGES, random_state=_STAGES_SEED)
    for _ in range(N_STAGES - 1):
        others, stage = next(lot.split(data.X[left], is_normal[left]))
        stages.append(left[stage])
        left = left[others]
    return [*stages, left]


def stratified_stages(data: Dataset, seed: int) -> list[Array]:
    """Divide a set into five parts with equal shares of anomalies, their rows in random order."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(part) for _, part in stratified_folds(data, N_STAGES, seed)]
