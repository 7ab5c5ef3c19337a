"""Files that are at all times the old one or the new one, whole: written beside, synced and renamed."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Give a file to write that takes the place of `path` when all has gone well, and vanishes otherwise.

    What is no regular file (a pipe, a device) cannot be replaced and is written as it is.
    """
    path = Path(path).resolve()  # what a link leads to is replaced, not the link
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else _usual_mode())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    _sync_folder(path.parent)


def _usual_mode() -> int:
    """Give the mode that a new file would have (a temporary one is for its owner only)."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the renaming last; not every system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
