"""Where data sets are looked for on this machine: a folder of data, and the cache of what was downloaded."""

import os
from pathlib import Path

from imondrian.errors import InvalidInputError

DATA, CACHE = "IMONDRIAN_DATA", "IMONDRIAN_CACHE"


def data_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Give the folder asked for, or else the one that IMONDRIAN_DATA names, if any; it must be there."""
    named = os.environ.get(DATA) if folder is None else folder
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_dir():
        origin = f" (named by {DATA})" if folder is None else ""
        raise InvalidInputError(f"The folder of data must be there, but {path}{origin} is no folder.")
    return path


def cache_folder() -> Path:
    """Give the folder for downloads, there or not: IMONDRIAN_CACHE, or imondrian in XDG_CACHE_HOME or ~/.cache."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else _home() / ".cache") / "imondrian"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidInputError(f"There is no home folder to keep downloads in: name one by {CACHE}.") from None
