"""The peers: which of them are installed, and their batch forests with equal parameters."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from workloads import SAMPLES, TREES

PEERS = {  # package name, and the module that is imported
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
    """Return the reason why a peer cannot be imported, or None."""
    try:
        import_module(PEERS[peer])
    except Exception as error:  # noqa: BLE001 (a broken package may raise anything)
        return f"{peer}: missing ({type(error).__name__}: {error})"
    return None


def present(names: Iterable[str]) -> list[str]:
    """Return the contestants that can be measured: ours, and the installed peers."""
    return [name for name in names if name not in PEERS or why_missing(name) is None]


def missing() -> list[str]:
    """Return the reason for each peer that is missing."""
    return [reason for peer in PEERS if (reason := why_missing(peer)) is not None]


def our_forest(n_threads: int) -> Any:
    """Return our forest."""
    from imondrian import MondrianForest

    return MondrianForest(TREES, max_samples=SAMPLES, n_jobs=n_threads)


def scikit_learn_forest(n_threads: int) -> Any:
    """Return the forest of scikit-learn; its scoring threads are set through joblib."""
    from sklearn.ensemble import IsolationForest

    return IsolationForest(n_estimators=TREES, max_samples=SAMPLES, n_jobs=n_threads, random_state=0)


def isotree_forest(n_threads: int) -> Any:
    """Return the forest of isotree, with random single-feature cuts like all others."""
    from isotree import IsolationForest

    return IsolationForest(ntrees=TREES, sample_size=SAMPLES, ndim=1, nthreads=n_threads)


def coniferest_forest(n_threads: int) -> Any:
    """Return the forest of coniferest."""
    from coniferest.isoforest import IsolationForest

    return IsolationForest(n_trees=TREES, n_subsamples=SAMPLES, n_jobs=n_threads, random_seed=0)


class Forest(NamedTuple):
    """A batch forest: its factory (by number of threads), and the names of its methods for fitting and scoring."""

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
    """Return a fitted forest."""
    forest = FORESTS[name]
    return getattr(forest.make(n_threads), forest.fit)(X)


def scoring(name: str, fitted_forest: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return the scoring method of a fitted forest."""
    method: Callable[[np.ndarray], np.ndarray] = getattr(fitted_forest, FORESTS[name].score)
    return method
