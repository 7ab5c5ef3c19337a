"""The content of a data set, independent of its file format: validation and checksum."""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.errors import DamagedFileError
from imondrian.datasets.catalogue import Entry
from imondrian.engine.jit import Array

# limit for a decompressed file; the largest set, 691,406 x 77 numbers of CICIDS 2017, needs 426 million bytes
MAX_BYTES = 2**29


class Content(NamedTuple):
    """The content of a file: points, labels, and the names of the features if it has any."""

    X: Array
    y: Array
    feature_names: tuple[str, ...] | None = None
    n_dropped: int = 0  # rows dropped because of a missing or infinite value


def as_content(
    X: Any, y: Any, where: str | os.PathLike[str], feature_names: Sequence[str] | Array | None = None
) -> Content:
    """Convert arrays to finite float64 points and labels 0 and 1."""
    points, labels = _as_points(np.asarray(X), where), _as_labels(np.asarray(y), where)
    if len(points) != len(labels):
        raise DamagedFileError(f"{where} has {len(points)} rows, but {len(labels)} labels.")
    if feature_names is not None and len(feature_names) != points.shape[1]:
        raise DamagedFileError(f"{where} has {points.shape[1]} features, but {len(feature_names)} feature names.")
    return Content(points, labels, None if feature_names is None else tuple(map(str, feature_names)))


def checksum(X: Array, y: Array) -> str:
    """Return the SHA-256 of a data set's content, which does not depend on the file format.

    It covers the shape (two little-endian 64-bit integers), the points (little-endian float64, row by row) and
    the labels (one byte each, 1 for an anomaly).

    Examples
    --------
    >>> import numpy as np
    >>> checksum(np.array([[0.5, 1.0]]), np.array([1]))[:16]
    '78d44c7651c8637e'
    """
    digest = hashlib.sha256(np.array(X.shape, dtype="<i8").tobytes())
    digest.update(np.ascontiguousarray(X, dtype="<f8").data)
    digest.update(np.ascontiguousarray(y, dtype=np.uint8).data)
    return digest.hexdigest()


def check_size(content: Content, entry: Entry, where: str | os.PathLike[str]) -> None:
    """Check that the numbers of rows, features and anomalies are those of the catalogue."""
    found = (*content.X.shape, int(content.y.sum()))
    if found != (*entry.shape, entry.n_anomalies):
        raise DamagedFileError(
            f"{where} is not {entry.name}: it must have {_size(*entry.shape, entry.n_anomalies)}, "
            f"but has {_size(*found)}."
        )


def check_exact(content: Content, entry: Entry, where: str | os.PathLike[str]) -> None:
    """Check that the content is that of the catalogue, bit for bit if its checksum is known."""
    check_size(content, entry, where)
    if entry.checksum is None:
        return
    found = checksum(content.X, content.y)
    if found != entry.checksum:
        raise DamagedFileError(
            f"{where} is not exactly {entry.name}: the SHA-256 of its content must be {entry.checksum}, but "
            f"is {found}. The size is right: a text file may have lost digits, or the rows may be in another order. "
            "load(..., verify=False) accepts such a file from a data folder."
        )


def _as_points(X: Array, where: str | os.PathLike[str]) -> Array:
    if X.dtype.kind not in "biuf":
        raise DamagedFileError(f"{where}: X must be numbers, but its type is {X.dtype}.")
    if X.ndim != 2 or X.size == 0:
        raise DamagedFileError(f"{where}: X must be a table of rows and features, but its shape is {X.shape}.")
    points = np.require(X, np.float64, ["C", "A", "W"])
    if not np.isfinite(points).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(points))[0])
        raise DamagedFileError(f"{where}: X[{row}, {column}] is {points[row, column]}: values must be finite.")
    return points


def _as_labels(y: Array, where: str | os.PathLike[str]) -> Array:
    if y.dtype.kind not in "biuf":
        raise DamagedFileError(f"{where}: labels must be numbers, but their type is {y.dtype}.")
    if y.size != max(y.shape, default=0):  # a single column or row is accepted as well
        raise DamagedFileError(f"{where}: labels must be one-dimensional, but their shape is {y.shape}.")
    labels = y.ravel()
    wrong = labels[(labels != 0) & (labels != 1)]
    if wrong.size:
        raise DamagedFileError(f"{where}: labels must be 0 (normal) or 1 (anomaly), but one is {wrong[0]}.")
    return labels.astype(np.uint8)


def _size(n_rows: int, n_features: int, n_anomalies: int) -> str:
    return f"{n_rows} rows of {n_features} features with {n_anomalies} anomalies"
