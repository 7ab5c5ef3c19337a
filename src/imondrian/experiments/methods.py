"""The compared systems by name: those of the paper's two tables with its settings, and ours beside them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pyod.models.ecod import ECOD
from pyod.models.hbos import HBOS
from pyod.models.inne import INNE
from pyod.models.knn import KNN
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from imondrian.experiments.baselines.incremental_lof import IncrementalLOF
from imondrian.experiments.baselines.online_oversampling_pca import OnlineOversamplingPCA
from imondrian.experiments.baselines.oversampling_pca import OversamplingPCA
from imondrian.experiments.baselines.peers import PyodDetector, ScikitDetector, Standardised
from imondrian.experiments.forests import ForestDetector

_PSI = 256  # of the paper's batches
_NEIGHBOURS = 10  # of LOF, in the paper
_OVERSAMPLING = 0.1  # of osPCA, in the paper


class Method(NamedTuple):
    """A system that is compared."""

    title: str
    make: Callable[[int], Any]  # a seed in, a detector out
    is_ours: bool = False  # and not in the paper


def _forest(max_samples: int | None, kind: str = "depth", scale: str | None = None) -> Callable[[int], ForestDetector]:
    return lambda seed: ForestDetector(max_samples, kind, scale, seed)


def _ours(max_samples: int | None, *variants: tuple[str, str | None]) -> dict[str, Method]:
    """Make what we add to the paper: other scores, and weights by standard deviation."""
    return {
        f"{kind}{'-std' if scale else ''}": Method(
            f"ours: {kind}{', std' if scale else ''}", _forest(max_samples, kind, scale), is_ours=True
        )
        for kind, scale in variants
    }


_LOF = Method("LOF", lambda _: ScikitDetector(_local_outlier_factor(), "negative_outlier_factor_"))
_IFOREST = Method("iForest", lambda seed: ScikitDetector(IsolationForest(random_state=seed)))


def _local_outlier_factor() -> LocalOutlierFactor:
    return LocalOutlierFactor(_NEIGHBOURS, novelty=True)


BATCH = {
    "imforest": Method("iMForest", _forest(_PSI)),
    "iforest": _IFOREST,
    "lof": _LOF,
    "svm": Method("one-class SVM", lambda _: ScikitDetector(OneClassSVM(gamma="auto"))),  # RBF, gamma = 1 / d
    **_ours(_PSI, ("expected", None), ("size", None), ("depth", "std"), ("expected", "std"), ("size", "std")),
}

ONLINE = {
    "imforest": Method("iMForest", _forest(None)),
    "incremental-lof": Method("incremental LOF", lambda _: IncrementalLOF(_NEIGHBOURS)),
    "ospca1": Method("osPCA1", lambda _: OversamplingPCA(_OVERSAMPLING)),
    "ospca2": Method("osPCA2", lambda _: OnlineOversamplingPCA(_OVERSAMPLING)),
    # "expected" is "depth" for rows that all trees hold: none of them would be cut off
    **_ours(None, ("size", None), ("depth", "std"), ("size", "std")),
}


def _standardised(make: Callable[[], Any]) -> Callable[[int], Standardised]:
    return lambda _: Standardised(PyodDetector(make()))


QUALITY = {
    "size-std": Method("ours: size", _forest(_PSI, "size", "std"), is_ours=True),
    "expected-std": Method("ours: expected", _forest(_PSI, "expected", "std"), is_ours=True),
    "depth-std": Method("ours: depth", _forest(_PSI, "depth", "std"), is_ours=True),
    "imforest": Method("iMForest as in the paper (depth, unscaled)", _forest(_PSI)),
    "iforest": _IFOREST,
    "lof": Method("LOF", lambda seed: Standardised(_LOF.make(seed))),
    "knn": Method("kNN", _standardised(lambda: KNN(n_neighbors=_NEIGHBOURS))),
    "svm": Method("one-class SVM", lambda seed: Standardised(BATCH["svm"].make(seed))),
    "ecod": Method("ECOD", _standardised(ECOD)),
    "hbos": Method("HBOS", _standardised(HBOS)),
    "inne": Method("INNE", lambda seed: Standardised(PyodDetector(INNE(random_state=seed)))),
}
