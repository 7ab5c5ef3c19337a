"""The forest on Apache Spark. Spark plans, shuffles, retries and saves checkpoints; imondrian adds Arrow functions."""

try:
    import pyarrow  # noqa: F401, ICN001
    import pyspark  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError(f"imondrian.spark needs {error.name}: pip install 'imondrian[spark]'") from error

from imondrian.spark.fitting import fit
from imondrian.spark.keyed import fit_by_key, score_by_key
from imondrian.spark.pipeline import IsolationMondrianForest, IsolationMondrianForestModel
from imondrian.spark.scoring import score
from imondrian.spark.streaming import watch

__all__ = [
    "IsolationMondrianForest",
    "IsolationMondrianForestModel",
    "fit",
    "fit_by_key",
    "score",
    "score_by_key",
    "watch",
]
