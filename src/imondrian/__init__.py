"""imondrian: anomaly detection for batches and streams by the isolation Mondrian forest."""

from typing import TYPE_CHECKING, Any

from imondrian.errors import DamagedFileError, EmptyForestError, ImondrianError, InvalidInputError
from imondrian.forest import MondrianForest
from imondrian.models import load, save
from imondrian.stream import StreamDetector

if TYPE_CHECKING:
    from imondrian.estimator import IsolationMondrianForest

__version__ = "0.1.0"
__all__ = [
    "DamagedFileError",
    "EmptyForestError",
    "ImondrianError",
    "InvalidInputError",
    "IsolationMondrianForest",
    "MondrianForest",
    "StreamDetector",
    "load",
    "save",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is first asked for: scikit-learn takes a second to load."""
    if name == "IsolationMondrianForest":
        from imondrian.estimator import IsolationMondrianForest  # noqa: PLC0415

        return IsolationMondrianForest
    raise AttributeError(f"module 'imondrian' has no attribute {name!r}")
