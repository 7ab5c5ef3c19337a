"""Broadcast of a model to the workers: sent once as the bytes of a model file, and read once by each worker."""

from collections import OrderedDict
from typing import Any

from pyspark.sql import SparkSession

from imondrian.errors import EmptyForestError
from imondrian.model_files import from_bytes
from imondrian.scorer import Scorer, scorer_of
from imondrian.sealed_zip import digest_of

_MAX_CACHED = 8  # models in the cache of a worker
_scorers: OrderedDict[bytes, Scorer] = OrderedDict()


class BroadcastModel:
    """A model file that is available on every worker."""

    def __init__(self, spark: SparkSession, content: bytes) -> None:
        self._digest = digest_of(content)
        has_context = hasattr(spark, "sparkContext")  # not in Spark Connect, where the bytes are sent with each task
        self._content: Any = spark.sparkContext.broadcast(content) if has_context else content

    def scorer(self) -> Scorer:
        """Return the scorer of the model, from the cache of the worker if possible."""
        if self._digest not in _scorers:
            content = self._content if isinstance(self._content, bytes) else self._content.value
            _scorers[self._digest] = read_scorer(content, "The model")
            if len(_scorers) > _MAX_CACHED:
                _scorers.popitem(last=False)
        _scorers.move_to_end(self._digest)
        return _scorers[self._digest]


def read_scorer(content: bytes, name: str) -> Scorer:
    """Read a model for a worker; it must hold points, and gets one thread, because Spark assigns the cores."""
    scorer = scorer_of(from_bytes(content, name), name)
    if scorer.forest.n_points == 0:
        raise EmptyForestError(f"{name} has not learned any points.")
    scorer.forest.n_jobs = 1
    return scorer
