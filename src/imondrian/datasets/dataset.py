"""The class Dataset, and the error for a missing data set."""

from typing import NamedTuple

from imondrian.base.errors import ImondrianError
from imondrian.datasets.catalogue import Entry
from imondrian.engine.jit import Array


class Dataset(NamedTuple):
    """Points with labels.

    Attributes
    ----------
    name : str
        The name in the catalogue, or of a synthetic set.
    X : array of float64, shape (n_rows, n_features)
        The points, unscaled.
    y : array of uint8, shape (n_rows,)
        1 for an anomaly, 0 for a normal point.
    feature_names : tuple of str, or None
        The names of the columns, if known.
    entry : Entry or None
        Its entry in the catalogue; None for a synthetic set.
    n_dropped : int
        Rows of the published file that were dropped because of a missing or infinite value.
    """

    name: str
    X: Array
    y: Array
    feature_names: tuple[str, ...] | None
    entry: Entry | None
    n_dropped: int = 0


class MissingDatasetError(ImondrianError, OSError):
    """A data set was neither found locally nor downloaded."""
