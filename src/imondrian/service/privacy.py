"""Files that nobody but their owner may read."""

import os
import stat
from contextlib import suppress
from pathlib import Path

_FOLDER, _FILE, _OTHERS = 0o700, 0o600, 0o077


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter, unless it is there."""
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read and write; one that is there becomes such a file.

    A file that is there is not opened: closing it would release the locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE))
    except FileExistsError:
        with suppress(PermissionError):  # the file of another user, who decides
            if is_open_to_others(path):
                path.chmod(_FILE)


def is_open_to_others(path: Path) -> bool:
    """Tell whether others than the owner may read, write or run a file."""
    return os.name == "posix" and bool(path.stat().st_mode & _OTHERS)


def mode_of(path: Path) -> str:
    """Write the mode of a file as `chmod` takes it."""
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"
