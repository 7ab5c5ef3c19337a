"""A file followed like `tail -F`: it may grow, be truncated, or be replaced by another file of the same name."""

import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

from imondrian.tables.lines import BLOCK_BYTES, CONTEXT_BYTES, Restart, readable

_POLL_SECONDS = 0.2  # interval at which to check whether the file has grown


class FollowedFile:
    """The bytes of a growing file: at the end of the file, wait for more.

    A truncated file is read again from its start. A file that was renamed or removed is read to its end; then the next
    file of that name is read from its start. Until there is a next file with content, the old file may still grow.

    Parameters
    ----------
    path : str
        Name of the file.
    descriptor : int
        An open descriptor, at the position to read from; its file may have another name by now.
    context : bytes, default=b""
        The last bytes before that position.
    """

    can_be_read_again = True

    def __init__(self, path: str, descriptor: int, context: bytes = b"") -> None:
        self._path = Path(path)
        self._descriptor = descriptor
        self._context = context
        self._successors: deque[int] = deque()  # descriptors of later files of that name, the latest last

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in (self._descriptor, *self._successors):
            os.close(descriptor)

    def next_block(self, wake_up: int) -> bytes | Restart | None:
        """Wait for the next bytes, or for a restart, after which the next bytes are the start of a file.

        Return None as soon as the descriptor `wake_up` can be read.
        """
        while True:
            if self._is_truncated():
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                self._context = b""
                return Restart.TRUNCATED
            self._find_successor()  # before reading: if there is a successor, this file no longer grows
            block = os.read(self._descriptor, BLOCK_BYTES)
            if block:
                self._context = (self._context + block)[-CONTEXT_BYTES:]
                return block
            if self._successors:
                self._switch_to_successor()
                return Restart.REPLACED
            if readable(wake_up, timeout=_POLL_SECONDS):
                return None

    def _is_truncated(self) -> bool:
        """Return True if the last bytes read are no longer in the file, even if it has grown since."""
        position = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        if os.fstat(self._descriptor).st_size < position:
            return True
        n_bytes = len(self._context)
        return os.pread(self._descriptor, n_bytes, position - n_bytes) != self._context

    def _find_successor(self) -> None:
        with suppress(OSError):  # at the moment the path is missing, unreadable, or a cycle of links
            current = self._path.stat()
            latest = os.fstat(self._successors[-1] if self._successors else self._descriptor)
            if stat.S_ISREG(current.st_mode) and current.st_size > 0 and not os.path.samestat(current, latest):
                self._successors.append(os.open(self._path, os.O_RDONLY))

    def _switch_to_successor(self) -> None:
        os.close(self._descriptor)
        self._descriptor = self._successors.popleft()
        self._context = b""
