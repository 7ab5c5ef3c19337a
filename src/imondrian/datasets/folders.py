"""Local folders of data sets: the data folder and the download cache."""

import os
from pathlib import Path

from imondrian.base.errors import InvalidInputError

DATA, CACHE = "IMONDRIAN_DATA", "IMONDRIAN_CACHE"


def data_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Return `folder`, or the folder that IMONDRIAN_DATA names, which must exist; None if neither is set."""
    named = os.environ.get(DATA) if folder is None else folder
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        origin = f" (named by {DATA})" if folder is None else ""
        raise InvalidInputError(f"The data folder must exist, but {path}{origin} is not a folder.")
    return path


def cache_folder() -> Path:
    """Return the folder of downloads, which need not exist.

    This is IMONDRIAN_CACHE, or else imondrian in XDG_CACHE_HOME or ~/.cache.
    """
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else _home() / ".cache") / "imondrian"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidInputError(f"There is no home folder for downloads: set {CACHE} to a folder.") from None
