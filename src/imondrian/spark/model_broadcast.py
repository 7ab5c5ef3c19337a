"""Broadcast of a model to the workers: sent once as the bytes of a model file, and read once by each worker."""

from collections import OrderedDict
from typing import Any

from pyspark.sql import SparkSession

from imondrian.base.errors import EmptyForestError
from imondrian.base.sealed_zip import digest_of
from imondrian.model_files import as_fitted_model, from_bytes
from imondrian.models.fitted_model import FittedModel

_MAX_CACHED = 8  # models in the cache of a worker
_models: OrderedDict[bytes, FittedModel] = OrderedDict()


class BroadcastModel:
    """A model file that is available on every worker."""

    def __init__(self, spark: SparkSession, content: bytes) -> None:
        self._digest = digest_of(content)
        has_context = hasattr(spark, "sparkContext")  # not in Spark Connect, where the bytes are sent with each task
        self._content: Any = spark.sparkContext.broadcast(content) if has_context else content

    def model(self) -> FittedModel:
        """Return the model, from the cache of the worker if possible."""
        if self._digest not in _models:
            content = self._content if isinstance(self._content, bytes) else self._content.value
            _models[self._digest] = read_model(content, "The model")
            if len(_models) > _MAX_CACHED:
                _models.popitem(last=False)
        _models.move_to_end(self._digest)
        return _models[self._digest]


def read_model(content: bytes, name: str) -> FittedModel:
    """Read a model on a worker; it must have learned points, and uses one thread, because Spark assigns the cores."""
    model = as_fitted_model(from_bytes(content, name), name)
    if model.forest.n_points == 0:
        raise EmptyForestError(f"{name} has not learned any points.")
    model.forest.n_jobs = 1
    return model
