"""imondrian: anomaly detection for batches and streams by the isolation Mondrian forest."""

from imondrian.errors import DamagedFileError, EmptyForestError, ImondrianError, InvalidInputError
from imondrian.forest import MondrianForest
from imondrian.storage import load, save

__version__ = "0.1.0"
__all__ = [
    "DamagedFileError",
    "EmptyForestError",
    "ImondrianError",
    "InvalidInputError",
    "MondrianForest",
    "load",
    "save",
]
