"""The compared systems by name.

They are the systems of Tables II and III with the paper's settings, our variants, and those of the quality comparison.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from pyod.models.ecod import ECOD
from pyod.models.hbos import HBOS
from pyod.models.inne import INNE
from pyod.models.knn import KNN
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from imondrian.base.option_types import Kind
from imondrian.engine.jit import Array
from imondrian.experiments.baselines.incremental_lof import IncrementalLOF
from imondrian.experiments.baselines.online_oversampling_pca import OnlineOversamplingPCA
from imondrian.experiments.baselines.oversampling_pca import OversamplingPCA
from imondrian.experiments.baselines.peers import PyodDetector, ScikitDetector, Standardised
from imondrian.experiments.forest_detector import ForestDetector

_WARM_UP_ROWS = 2_100  # enough rows that the kernels for many rows are compiled, too
_PSI = 256  # points per tree in the paper's batch experiments
_NEIGHBOURS = 10  # of LOF in the paper
_OVERSAMPLING = 0.1  # ratio of copies in the paper's osPCA


class Method(NamedTuple):
    """A system that is compared."""

    title: str
    make: Callable[[int], Any]  # from a seed to a `Detector` or `OnlineDetector`; must be picklable, so not a lambda
    is_ours: bool = False  # one of our additions to the paper
    is_random: bool = True  # the result depends on the seed; if not, `online` uses one seed only


def warm_up(method: Method, X: Array) -> None:
    """Run a method once on a few rows, so that compilation is not measured."""
    rows = X[:_WARM_UP_ROWS]
    detector = method.make(0).fit(rows)
    if hasattr(detector, "extend"):
        detector.extend(rows[:2])
    detector.learned_scores()
    detector.score(rows)


def _forest(max_samples: int | None, kind: Kind, scale: Literal["std"] | None, seed: int) -> ForestDetector:
    return ForestDetector(max_samples, kind, scale, seed)


def _ours(max_samples: int | None, *variants: tuple[Kind, Literal["std"] | None]) -> dict[str, Method]:
    """Return our additions to the paper: other scores, and features weighted by one over their standard deviations."""
    return {
        f"{kind}{'-std' if scale else ''}": Method(
            f"ours: {kind}{', std' if scale else ''}", partial(_forest, max_samples, kind, scale), is_ours=True
        )
        for kind, scale in variants
    }


def _isolation_forest(seed: int) -> ScikitDetector:
    return ScikitDetector(IsolationForest(random_state=seed))


def _local_outlier_factor(_seed: int) -> ScikitDetector:
    return ScikitDetector(LocalOutlierFactor(_NEIGHBOURS, novelty=True), "negative_outlier_factor_")


def _one_class_svm(_seed: int) -> ScikitDetector:
    return ScikitDetector(OneClassSVM(gamma="auto"))  # RBF, gamma = 1 / d


BATCH = {
    "imforest": Method("iMForest", partial(_forest, _PSI, "depth", None)),
    "iforest": Method("iForest", _isolation_forest),
    "lof": Method("LOF", _local_outlier_factor, is_random=False),
    "svm": Method("one-class SVM", _one_class_svm, is_random=False),
    **_ours(_PSI, ("expected", None), ("size", None), ("depth", "std"), ("expected", "std"), ("size", "std")),
}


def _incremental_lof(_seed: int) -> IncrementalLOF:
    return IncrementalLOF(_NEIGHBOURS)


def _ospca1(_seed: int) -> OversamplingPCA:
    return OversamplingPCA(_OVERSAMPLING)


def _ospca2(_seed: int) -> OnlineOversamplingPCA:
    return OnlineOversamplingPCA(_OVERSAMPLING)


ONLINE = {
    "imforest": Method("iMForest", partial(_forest, None, "depth", None)),
    "incremental-lof": Method("incremental LOF", _incremental_lof, is_random=False),
    "ospca1": Method("osPCA1", _ospca1, is_random=False),
    "ospca2": Method("osPCA2", _ospca2, is_random=False),
    # without "expected", which equals "depth" for rows that all trees hold
    **_ours(None, ("size", None), ("depth", "std"), ("size", "std")),
}


def _standardised(make: Callable[[int], Any], seed: int) -> Standardised:
    return Standardised(make(seed))


def _standardised_pyod(make: Callable[[], Any], _seed: int) -> Standardised:
    return Standardised(PyodDetector(make()))


def _inne(seed: int) -> PyodDetector:
    return PyodDetector(INNE(random_state=seed))


QUALITY = {
    "size-std": Method("ours: size", partial(_forest, _PSI, "size", "std"), is_ours=True),
    "expected-std": Method("ours: expected", partial(_forest, _PSI, "expected", "std"), is_ours=True),
    "depth-std": Method("ours: depth", partial(_forest, _PSI, "depth", "std"), is_ours=True),
    "imforest": Method("iMForest as in the paper (depth, unscaled)", partial(_forest, _PSI, "depth", None)),
    "iforest": Method("iForest", _isolation_forest),
    "lof": Method("LOF", partial(_standardised, _local_outlier_factor), is_random=False),
    "knn": Method("kNN", partial(_standardised_pyod, partial(KNN, n_neighbors=_NEIGHBOURS)), is_random=False),
    "svm": Method("one-class SVM", partial(_standardised, _one_class_svm), is_random=False),
    "ecod": Method("ECOD", partial(_standardised_pyod, ECOD), is_random=False),
    "hbos": Method("HBOS", partial(_standardised_pyod, HBOS), is_random=False),
    "inne": Method("INNE", partial(_standardised, _inne)),
}
