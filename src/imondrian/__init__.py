"""Anomaly detection for batches and streams with isolation Mondrian forests."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from imondrian.alarms.drift import Drift
    from imondrian.alarms.incidents import Incident, IncidentEvent, IncidentRules
    from imondrian.alarms.thresholds import StreamingThreshold
    from imondrian.base.errors import (
        DamagedFileError,
        EmptyForestError,
        ImondrianError,
        InvalidInputError,
        StoreError,
    )
    from imondrian.estimator import IsolationMondrianForest
    from imondrian.fleet.fleet import Fleet
    from imondrian.fleet.results import FleetResult, FleetResults, KeyChanges, KeyEvent, KeyIncident
    from imondrian.forest.expected_values import ExpectedValues
    from imondrian.forest.mondrian_forest import MondrianForest
    from imondrian.model_files import load, save
    from imondrian.stream.detector import Result, Results, StreamDetector
    from imondrian.stream.shingles import Shingle

__version__ = "0.1.0"
__all__ = [
    "DamagedFileError",
    "Drift",
    "EmptyForestError",
    "ExpectedValues",
    "Fleet",
    "FleetResult",
    "FleetResults",
    "ImondrianError",
    "Incident",
    "IncidentEvent",
    "IncidentRules",
    "InvalidInputError",
    "IsolationMondrianForest",
    "KeyChanges",
    "KeyEvent",
    "KeyIncident",
    "MondrianForest",
    "Result",
    "Results",
    "Shingle",
    "StoreError",
    "StreamDetector",
    "StreamingThreshold",
    "load",
    "save",
]
_MODULES = {
    "DamagedFileError": "base.errors",
    "Drift": "alarms.drift",
    "EmptyForestError": "base.errors",
    "ExpectedValues": "forest.expected_values",
    "Fleet": "fleet.fleet",
    "FleetResult": "fleet.results",
    "FleetResults": "fleet.results",
    "ImondrianError": "base.errors",
    "Incident": "alarms.incidents",
    "IncidentEvent": "alarms.incidents",
    "IncidentRules": "alarms.incidents",
    "InvalidInputError": "base.errors",
    "IsolationMondrianForest": "estimator",
    "KeyChanges": "fleet.results",
    "KeyEvent": "fleet.results",
    "KeyIncident": "fleet.results",
    "MondrianForest": "forest.mondrian_forest",
    "Result": "stream.detector",
    "Results": "stream.detector",
    "Shingle": "stream.shingles",
    "StoreError": "base.errors",
    "StreamDetector": "stream.detector",
    "StreamingThreshold": "alarms.thresholds",
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
