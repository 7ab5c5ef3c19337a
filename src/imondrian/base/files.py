"""Atomic file writes: at any time, a file is either the complete old version or the complete new one."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from imondrian.base.errors import InvalidInputError


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that replaces `path` on success and is deleted on failure.

    The file is written next to the target, synced and renamed. A path that is not a regular file (a pipe, a device)
    cannot be replaced and is written directly.
    """
    target = real_path(path)  # replace the target of a link, not the link
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    with _errors_that_name(path, target), replacement(target) as temporary, temporary.open("r+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _errors_that_name(path: str | os.PathLike[str], target: Path) -> Iterator[None]:
    """In errors about a temporary file, name the path that the caller knows."""
    try:
        yield
    except OSError as error:
        if str(error.filename).startswith(str(target.parent / _temporary_start(target))):
            error.filename, error.filename2 = os.fspath(path), None
        raise


@contextmanager
def replacement(path: Path) -> Iterator[Path]:
    """Yield the path of an empty temporary file, which replaces `path` on success and is deleted on failure.

    The caller writes and syncs the file. It keeps the permissions of the file that it replaces; until then, only its
    owner can read it.
    """
    temporary = path.parent / f"{_temporary_start(path)}{secrets.token_hex(8)}"
    try:  # entered before the file exists, so that an interruption always deletes it
        _create(temporary, 0o600 if path.exists() else 0o666)
        yield temporary
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _temporary_start(path: Path) -> str:
    """Return how the names of temporary files begin."""
    return f".{path.name[:50]}."


def check_exists(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInputError if a file is missing, and OSError if its path cannot be used, as with circular links."""
    try:
        os.stat(path)  # noqa: PTH116 (Path.exists returns False for circular links)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInputError(f"{os.fspath(path)}: file not found.") from None


def real_path(path: str | os.PathLike[str]) -> Path:
    """Return the path without symbolic links; the file need not exist. Raise OSError for circular links."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)  # noqa: PTH116 (for its error: Path.resolve raises a RuntimeError, or nothing since Python 3.13)
    return Path(os.path.realpath(path))


def _create(path: Path, mode: int) -> None:
    """Create an empty file with these permissions, less those of the umask."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, on systems that support it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
