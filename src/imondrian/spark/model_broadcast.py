"""Models on their way to the workers: broadcast once as the bytes of a model file, read once by each worker."""

from collections import OrderedDict
from typing import Any

from pyspark.sql import SparkSession

from imondrian.errors import EmptyForestError
from imondrian.model_files import from_bytes
from imondrian.scorer import Scorer, scorer_of
from imondrian.sealed_zip import digest_of

_N_KEPT = 8  # models that a worker keeps at a time
_kept: OrderedDict[bytes, Scorer] = OrderedDict()


class BroadcastModel:
    """A model file that every worker can ask for its scorer."""

    def __init__(self, spark: SparkSession, content: bytes) -> None:
        self._digest = digest_of(content)
        has_context = hasattr(spark, "sparkContext")  # Spark Connect has none: then the bytes travel with each task
        self._content: Any = spark.sparkContext.broadcast(content) if has_context else content

    def scorer(self) -> Scorer:
        """Read the model, or remember it."""
        if self._digest not in _kept:
            content = self._content if isinstance(self._content, bytes) else self._content.value
            _kept[self._digest] = read_scorer(content, "The model")
            if len(_kept) > _N_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(self._digest)
        return _kept[self._digest]


def read_scorer(content: bytes, name: str) -> Scorer:
    """Read a model that has points, for a worker: Spark shares out the processors, and it gets one."""
    scorer = scorer_of(from_bytes(content, name), name)
    if scorer.forest.n_points == 0:
        raise EmptyForestError(f"{name} has not been shown any points.")
    scorer.forest.n_jobs = 1
    return scorer
