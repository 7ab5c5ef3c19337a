"""Splits of a data set: into folds for Table II, and into stages for Table III."""

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold, StratifiedShuffleSplit

from imondrian.base.errors import InvalidInputError
from imondrian.datasets import Dataset
from imondrian.engine.jit import Array
from imondrian.experiments.paper_results import STAGES

N_FOLDS, N_STAGES = 10, len(STAGES)
FEWER_FOLDS = {"wine": 2}  # too few anomalies for 10 folds
_FOLDS_SEED, _STAGES_SEED = 100, 10
Split = tuple[Array, Array]  # rows to fit on, rows to test


def n_folds_of(data: Dataset, n_folds: int) -> int:
    """Return the number of folds for a set; raise InvalidInputError if its smaller class has fewer rows than that."""
    n_folds = min(n_folds, FEWER_FOLDS.get(data.name, n_folds))
    n_smaller = int(min(data.y.sum(), (data.y == 0).sum()))
    if n_folds > n_smaller:
        raise InvalidInputError(
            f"The data set {data.name} has {n_smaller} rows in its smaller class, too few for {n_folds} folds."
        )
    return n_folds


def published_folds(data: Dataset, n_folds: int) -> list[Split]:
    """Split a set into the folds behind Table II.

    The paper does not say how they were drawn. With shuffled, unstratified folds and the seed `_FOLDS_SEED`,
    deterministic methods reproduce the paper's results, including the standard deviations. If the test rows of a fold
    would all be of one class, the folds are stratified instead; this does not happen for the paper's sets.
    """
    folds = list(KFold(n_folds, shuffle=True, random_state=_FOLDS_SEED).split(data.X))
    if all(0 < data.y[test].sum() < len(test) for _, test in folds):
        return folds
    return stratified_folds(data, n_folds, _FOLDS_SEED)


def stratified_folds(data: Dataset, n_folds: int, seed: int) -> list[Split]:
    """Split a set into stratified folds, shuffled with this seed."""
    return list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(data.X, data.y))


def published_stages(data: Dataset) -> list[Array]:
    """Split a set into the stages behind Table III, like the authors' published scripts.

    Four times, a fifth of all rows is drawn from the remaining rows at random, stratified by class, always with the
    same seed. The rest is the last stage. The classes are in the same order as in the scripts, anomalies first, because
    the draw depends on their order.
    """
    is_normal, remaining, stages = data.y == 0, np.arange(len(data.y)), []
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=len(data.y) // N_STAGES, random_state=_STAGES_SEED)
    for _ in range(N_STAGES - 1):
        others, stage = next(splitter.split(data.X[remaining], is_normal[remaining]))
        stages.append(remaining[stage])
        remaining = remaining[others]
    return [*stages, remaining]


def stratified_stages(data: Dataset, seed: int) -> list[Array]:
    """Split a set into five stratified stages, with their rows in random order."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(part) for _, part in stratified_folds(data, N_STAGES, seed)]
