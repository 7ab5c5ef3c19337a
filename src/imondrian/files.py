"""Files that are at all times the old one or the new one, whole: written beside, synced and renamed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Give a file to write that takes the place of `path` when all has gone well, and vanishes otherwise.

    What is not a regular file (a pipe, a device) cannot be replaced and is written as it is.
    """
    path = real_path(path)  # what a link leads to is replaced, not the link
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    beside = path.parent / f".{path.name[:50]}.{secrets.token_hex(8)}"
    try:  # before the file is made, so that a signal cannot come between
        with open(beside, "x+b", opener=_for_owner) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(path.stat().st_mode & 0o777 if path.exists() else _usual_mode())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(path.parent)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path without symbolic links, of a file that need not exist; links in a circle are an OSError."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)  # noqa: PTH116 (for its error: Path.resolve raises a RuntimeError, or nothing since Python 3.13)
    return Path(os.path.realpath(path))


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _usual_mode() -> int:
    """Return the mode that a new file would have (a temporary one is for its owner only)."""
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
