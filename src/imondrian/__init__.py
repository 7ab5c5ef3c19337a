"""imondrian: anomaly detection for batches and streams by the isolation Mondrian forest."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imondrian.errors import DamagedFileError, EmptyForestError, ImondrianError, InvalidInputError
    from imondrian.estimator import IsolationMondrianForest
    from imondrian.forest import MondrianForest
    from imondrian.model_files import load, save
    from imondrian.stream import StreamDetector

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
_HOMES = {
    "DamagedFileError": "errors",
    "EmptyForestError": "errors",
    "ImondrianError": "errors",
    "InvalidInputError": "errors",
    "IsolationMondrianForest": "estimator",
    "MondrianForest": "forest",
    "StreamDetector": "stream",
    "load": "models",
    "save": "models",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: numba and scikit-learn take a second to load, `--help` must not."""
    if name not in _HOMES:
        raise AttributeError(f"module 'imondrian' has no attribute {name!r}")
    value = getattr(import_module(f"imondrian.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
