"""Atomic file writes: at any time, a file is either the complete old version or the complete new one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` on success and is deleted on failure.

    The file is written next to the target, synced and renamed. A path that is not a regular file (a pipe, a device)
    cannot be replaced and is written directly.
    """
    path = real_path(path)  # replace the target of a link, not the link
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    with replacement(path) as temporary, open(temporary, "x+b", opener=_open_private) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `path` on success and is deleted on failure.

    The caller creates the file and syncs it.
    """
    temporary = path.parent / f".{path.name[:50]}.{secrets.token_hex(8)}"
    try:  # entered before the file exists, so that an interruption always deletes it
        yield temporary
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else _default_mode())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path without symbolic links; the file need not exist. Raise OSError for circular links."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)  # noqa: PTH116 (for its error: Path.resolve raises a RuntimeError, or nothing since Python 3.13)
    return Path(os.path.realpath(path))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _default_mode() -> int:
    """Return the usual mode of a new file; the temporary file is created readable only by its owner."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, on systems that support it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
