"""Read NumPy archives (.npz) without unpickling and within a memory limit, and write them atomically."""

import math
import zlib
from collections.abc import Iterable
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy

from imondrian.base.errors import DamagedFileError
from imondrian.base.files import atomic_write
from imondrian.datasets.content import MAX_BYTES, Content, as_content
from imondrian.datasets.sources import Source, open_source
from imondrian.engine.jit import Array

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_FAILURES = (
    OSError, EOFError, ValueError, TypeError, KeyError, RuntimeError, MemoryError, SyntaxError, TokenError, BadZipFile,
    zlib.error,
)  # fmt: skip


def read(source: Source, where: str, label: str) -> Content:
    """Read the arrays X and `label`, and feature_names if present."""
    try:
        with open_source(source) as file, ZipFile(file) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            selected = {name: members[name] for name in members.keys() & {"X", label, "feature_names"}}
            _check_bytes(archive, selected.values(), where)
            arrays = {name: _array(archive, member) for name, member in selected.items()}
    except DamagedFileError:
        raise
    except _FAILURES as error:
        raise DamagedFileError(f"{where} is not a NumPy archive of plain arrays: {error}.") from None
    if not {"X", label} <= set(arrays):
        raise DamagedFileError(
            f"{where} must contain the arrays X and {label}, but contains {sorted(members) or 'none'}."
        )
    names = arrays["feature_names"].ravel() if "feature_names" in arrays else None
    return as_content(arrays["X"], arrays[label], where, names)


def write(path: Path, content: Content) -> None:
    """Write the content to a file, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"X": content.X, "y": content.y}
    if content.feature_names is not None:
        arrays["feature_names"] = np.array(content.feature_names)
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def _check_bytes(archive: ZipFile, members: Iterable[ZipInfo], where: str) -> None:
    """Check, before reading any array, that the members declare at most MAX_BYTES."""
    n_bytes = sum(member.file_size for member in members)
    if n_bytes <= MAX_BYTES:  # otherwise do not even read the headers
        n_bytes = sum(max(member.file_size, _bytes_in_memory(archive, member)) for member in members)
    if n_bytes > MAX_BYTES:
        raise DamagedFileError(f"{where} must expand to at most {MAX_BYTES} bytes, but expands to {n_bytes}.")


def _bytes_in_memory(archive: ZipFile, member: ZipInfo) -> int:
    """Return the size of an array in memory, computed from its header; narrower numbers will become float64."""
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # zipfile decompresses other kinds without a limit
        raise ValueError(f"{member.filename} uses a compression method that NumPy does not write")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            number = ".".join(map(str, version))
            raise ValueError(f"the format version {number} of {member.filename} is not supported (1.0 or 2.0)")
        shape, _, dtype = _HEADERS[version](file)
    return math.prod(shape) * max(dtype.itemsize, 8)


def _array(archive: ZipFile, member: ZipInfo) -> Array:
    with archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)
