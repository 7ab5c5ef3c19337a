"""Models on their way to the workers: broadcast once as the bytes of a model file, read once by each worker."""

from collections import OrderedDict
from typing import Any

from pyspark.sql import SparkSession

from imondrian.errors import EmptyForestError
from imondrian.fitted_model import FittedModel
from imondrian.model_files import as_fitted_model, from_bytes
from imondrian.sealed_zip import digest_of

_N_KEPT = 8  # models that a worker keeps at a time
_kept: OrderedDict[bytes, FittedModel] = OrderedDict()


class Shipped:
    """A model file that every worker can read."""

    def __init__(self, spark: SparkSession, content: bytes) -> None:
        self._digest = digest_of(content)
        has_context = hasattr(spark, "sparkContext")  # Spark Connect has none: then the bytes travel with each task
        self._content: Any = spark.sparkContext.broadcast(content) if has_context else content

    def model(self) -> FittedModel:
        """Read the model, or remember it."""
        if self._digest not in _kept:
            content = self._content if isinstance(self._content, bytes) else self._content.value
            _kept[self._digest] = read_model(content, "The model")
            if len(_kept) > _N_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(self._digest)
        return _kept[self._digest]


def read_model(content: bytes, name: str) -> FittedModel:
    """Read a model that has points, for a worker: Spark shares out the processors, and it gets one."""
    model = as_fitted_model(from_bytes(content, name), name)
    if model.forest.n_points == 0:
        raise EmptyForestError(f"{name} has not been shown any points.")
    model.forest.n_jobs = 1
    return model
