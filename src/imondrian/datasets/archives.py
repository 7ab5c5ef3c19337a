"""NumPy archives (.npz): read without unpickling anything, and written whole."""

import zlib
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from imondrian.datasets.content import Content, as_content
from imondrian.datasets.sources import Source, opened
from imondrian.errors import DamagedFileError
from imondrian.files import written_whole

_FAILURES = (OSError, EOFError, ValueError, KeyError, RuntimeError, MemoryError, BadZipFile, zlib.error)


def read(source: Source, where: str, label: str) -> Content:
    """Read the arrays X and `label`, and feature_names if there are any."""
    try:
        with opened(source) as file, _archive_in(file) as archive:
            names = set(archive)
            arrays = {name: archive[name] for name in names & {"X", label, "feature_names"}}
    except _FAILURES as error:
        raise DamagedFileError(f"{where} is no NumPy archive of plain arrays: {error}.") from None
    if not {"X", label} <= set(arrays):
        raise DamagedFileError(f"{where} must hold the arrays X and {label}, but holds {sorted(names) or 'none'}.")
    named = tuple(map(str, arrays["feature_names"])) if "feature_names" in arrays else None
    return as_content(arrays["X"], arrays[label], where, named)


def write(path: Path, content: Content) -> None:
    """Write the content into a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"X": content.X, "y": content.y}
    if content.feature_names is not None:
        arrays["feature_names"] = np.array(content.feature_names)
    with written_whole(path) as file:
        np.savez_compressed(file, **arrays)


def _archive_in(file: IO[bytes]) -> Any:
    """Open the archive; a single array (.npy) is one without members."""
    loaded = np.load(file, allow_pickle=False)
    return loaded if isinstance(loaded, NpzFile) else nullcontext({})
