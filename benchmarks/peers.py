"""The peers: which of them are here, and their batch forests with equal parameters, on so many threads."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from workloads import SAMPLES, TREES

PEERS = {  # what a peer is installed as, and the module that is needed of it
    "scikit-learn": "sklearn.ensemble",
    "isotree": "isotree",
    "coniferest": "coniferest.isoforest",
    "krcf": "krcf",
    "rrcf": "rrcf",
    "river": "river.anomaly",
    "pyod": "pyod.models.iforest",
}


@cache
def why_missing(peer: str) -> str | None:
    """Import a peer; give the reason if that cannot be done."""
    try:
        import_module(PEERS[peer])
    except Exception as error:  # noqa: BLE001 (one that is broken may raise anything)
        return f"{peer}: missing ({type(error).__name__}: {error})"
    return None


def present(names: Iterable[str]) -> list[str]:
    """Give those that can be measured here: ours, and the peers that are installed."""
    return [name for name in names if name not in PEERS or why_missing(name) is None]


def missing() -> list[str]:
    """Name the peers that are not here, with the reasons."""
    return [reason for peer in PEERS if (reason := why_missing(peer)) is not None]


def our_forest(n_threads: int) -> Any:
    """Make ours."""
    from imondrian import MondrianForest

    return MondrianForest(TREES, max_samples=SAMPLES, n_jobs=n_threads)


def scikit_learn_forest(n_threads: int) -> Any:
    """Make scikit-learn's; when it scores, the threads are those that joblib is told."""
    from sklearn.ensemble import IsolationForest

    return IsolationForest(n_estimators=TREES, max_samples=SAMPLES, n_jobs=n_threads, random_state=0)


def isotree_forest(n_threads: int) -> Any:
    """Make that of isotree, with single features cut at random, as in all others."""
    from isotree import IsolationForest

    return IsolationForest(ntrees=TREES, sample_size=SAMPLES, ndim=1, nthreads=n_threads)


def coniferest_forest(n_threads: int) -> Any:
    """Make that of coniferest."""
    from coniferest.isoforest import IsolationForest

    return IsolationForest(n_trees=TREES, n_subsamples=SAMPLES, n_jobs=n_threads, random_seed=0)


class Forest(NamedTuple):
    """A batch forest: how it is made for so many threads, and the methods that fit and score."""

    make: Callable[[int], Any]
    fit: str
    score: str


FORESTS = {
    "ours": Forest(our_forest, "build", "score"),
    "scikit-learn": Forest(scikit_learn_forest, "fit", "score_samples"),
    "isotree": Forest(isotree_forest, "fit", "predict"),
    "coniferest": Forest(coniferest_forest, "fit", "score_samples"),
}


def fitted(name: str, X: np.ndarray, n_threads: int = 1) -> Any:
    """Make a forest and fit it."""
    forest = FORESTS[name]
    return getattr(forest.make(n_threads), forest.fit)(X)


def scoring(name: str, fitted_forest: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Give the method that scores, with nothing around it."""
    method: Callable[[np.ndarray], np.ndarray] = getattr(fitted_forest, FORESTS[name].score)
    return method
