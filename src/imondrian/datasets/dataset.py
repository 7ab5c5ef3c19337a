"""A data set as it is handed out, and the error that there is none."""

from typing import NamedTuple

from imondrian.datasets.catalogue import Entry
from imondrian.engine.jit import Array
from imondrian.errors import ImondrianError


class Dataset(NamedTuple):
    """Points with labels.

    Attributes
    ----------
    name : str
        As in the catalogue, or that of a synthetic set.
    X : array of float64, shape (n_rows, n_features)
        The points, unscaled.
    y : array of uint8, shape (n_rows,)
        1 for an anomaly, 0 for a normal point.
    feature_names : tuple of str, or None
        The names of the columns, where they are known.
    entry : Entry or None
        What the catalogue says of it; None for a synthetic set.
    n_dropped : int
        Rows of the published file that were left out, since a value was missing or infinite.
    """

    name: str
    X: Array
    y: Array
    feature_names: tuple[str, ...] | None
    entry: Entry | None
    n_dropped: int = 0


class MissingDatasetError(ImondrianError, OSError):
    """A data set is neither at hand nor could it be fetched."""
