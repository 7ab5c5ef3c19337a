"""A file that is followed as `tail -F` does: it grows, is cut, or is replaced by another file of its name."""

import os
import select
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

from imondrian.tables.lines import BLOCK_BYTES, KNOWN_BYTES, Restart

_NAP = 0.2  # seconds between two looks at a file that has not grown


class FollowedFile:
    """The bytes of a file without an end: at its end more is waited for.

    A file that was cut is read from its start again. A file that was renamed or removed is read to its end, and then
    the next file of its name from the start; until there is one with content, more may still come in the old one.

    Parameters
    ----------
    path : str
        The name of the file.
    descriptor : int
        An open descriptor, at the position from which to read; perhaps of a file that has another name by now.
    before : bytes, default=b""
        The last bytes before that position.
    """

    can_be_read_again = True

    def __init__(self, path: str, descriptor: int, before: bytes = b"") -> None:
        self._path = Path(path)
        self._descriptor = descriptor
        self._before = before
        self._successors: deque[int] = deque()  # descriptors of the files that had the name since, the latest last

    def close(self) -> None:
        """Close what is open."""
        for descriptor in (self._descriptor, *self._successors):
            os.close(descriptor)

    def next_block(self, woken: int) -> bytes | Restart | None:
        """Wait for the next bytes, or for the news that they will be those of a file from its start."""
        while True:
            if self._is_cut():
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                self._before = b""
                return Restart.CUT
            self._look_for_successor()  # before reading: once there is one, the end of this file is its last
            block = os.read(self._descriptor, BLOCK_BYTES)
            if block:
                self._before = (self._before + block)[-KNOWN_BYTES:]
                return block
            if self._successors:
                self._go_on_with_successor()
                return Restart.REPLACED
            if select.select([woken], [], [], _NAP)[0]:
                return None

    def _is_cut(self) -> bool:
        """Tell whether what was read last is no longer there, be it that as much has been written since."""
        position = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        n_known = len(self._before)
        return os.pread(self._descriptor, n_known, position - n_known) != self._before

    def _look_for_successor(self) -> None:
        with suppress(OSError):  # not there, links in a circle or not to be read: at this moment
            there = self._path.stat()
            latest = os.fstat(self._successors[-1] if self._successors else self._descriptor)
            if stat.S_ISREG(there.st_mode) and there.st_size > 0 and not os.path.samestat(there, latest):
                self._successors.append(os.open(self._path, os.O_RDONLY))

    def _go_on_with_successor(self) -> None:
        os.close(self._descriptor)
        self._descriptor = self._successors.popleft()
        self._before = b""
