"""Models on their way to the workers: broadcast once as the bytes of a model file, read once by each worker."""

from collections import OrderedDict
from typing import Any

from pyspark.sql import SparkSession

from imondrian.models import from_bytes
from imondrian.scorer import Scorer, scorer_of

_N_KEPT = 8  # models that a worker keeps at a time
_DIGEST_LENGTH = 64  # with which a model file ends
_kept: OrderedDict[bytes, Scorer] = OrderedDict()


class Shipped:
    """A model file that every worker can ask for its scorer."""

    def __init__(self, spark: SparkSession, content: bytes) -> None:
        self._digest = content[-_DIGEST_LENGTH:]
        has_context = hasattr(spark, "sparkContext")  # Spark Connect has none: then the bytes travel with each task
        self._content: Any = spark.sparkContext.broadcast(content) if has_context else content

    def scorer(self) -> Scorer:
        """Read the model, or remember it."""
        if self._digest not in _kept:
            content = self._content if isinstance(self._content, bytes) else self._content.value
            _kept[self._digest] = scorer_of(from_bytes(content), "The model")
            if len(_kept) > _N_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(self._digest)
        return _kept[self._digest]
