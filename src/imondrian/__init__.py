"""Anomaly detection for batches and streams with isolation Mondrian forests."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from imondrian.drift import Drift
    from imondrian.errors import DamagedFileError, EmptyForestError, ImondrianError, InvalidInputError
    from imondrian.estimator import IsolationMondrianForest
    from imondrian.expected_values import ExpectedValues
    from imondrian.forest import MondrianForest
    from imondrian.incidents import Incident, IncidentEvent, IncidentRules
    from imondrian.model_files import load, save
    from imondrian.shingles import Shingle
    from imondrian.stream import Result, Results, StreamDetector
    from imondrian.thresholds import StreamingThreshold

__version__ = "0.1.0"
__all__ = [
    "DamagedFileError",
    "Drift",
    "EmptyForestError",
    "ExpectedValues",
    "ImondrianError",
    "Incident",
    "IncidentEvent",
    "IncidentRules",
    "InvalidInputError",
    "IsolationMondrianForest",
    "MondrianForest",
    "Result",
    "Results",
    "Shingle",
    "StreamDetector",
    "StreamingThreshold",
    "load",
    "save",
]
_MODULES = {
    "DamagedFileError": "errors",
    "Drift": "drift",
    "EmptyForestError": "errors",
    "ExpectedValues": "expected_values",
    "ImondrianError": "errors",
    "Incident": "incidents",
    "IncidentEvent": "incidents",
    "IncidentRules": "incidents",
    "InvalidInputError": "errors",
    "IsolationMondrianForest": "estimator",
    "MondrianForest": "forest",
    "Result": "stream",
    "Results": "stream",
    "Shingle": "shingles",
    "StreamDetector": "stream",
    "StreamingThreshold": "thresholds",
    "load": "model_files",
    "save": "model_files",
}


def __getattr__(name: str) -> _Any:
    """Import a public name on first use: numba and scikit-learn take a second to load, and `--help` must be fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'imondrian' has no attribute {name!r}")
    value = getattr(_import_module(f"imondrian.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
