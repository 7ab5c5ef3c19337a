"""Lines as they arrive, from a pipe or from a file that grows, in batches of what there is."""

import os
import select
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import NamedTuple

_BLOCK_BYTES = 2**16
_BLOCKS_AHEAD = 1  # that are read while another is worked on
_MOST_LINES = 1024  # of a batch; in shorter ones, trees are fetched into the cache too often
_NAP = 0.2  # seconds between two looks at a file that has not grown
_LONGEST = 2**26
_BEGUN_ANEW = b""  # stands in the queue where the file was cut


class Batch(NamedTuple):
    """Some lines, without their ends."""

    lines: list[bytes]
    position: int  # in the file, behind them


class Lines:
    """Lines of a file descriptor, read on a thread of their own so that waiting for them can be ended.

    Parameters
    ----------
    descriptor : int
        What to read from.
    follow : bool, default=False
        At the end of a file wait for more, as ``tail -f`` does; a file that becomes shorter is read from its start.
    position : int, default=0
        Where in the file the descriptor stands.
    """

    def __init__(self, descriptor: int, *, follow: bool = False, position: int = 0) -> None:
        self._descriptor = descriptor
        self._follow = follow
        self._position = position
        self._blocks: SimpleQueue[bytes | OSError | None] = SimpleQueue()
        self._ahead = threading.Semaphore(_BLOCKS_AHEAD)
        self._is_stopped = threading.Event()
        self._woken, self._waker = os.pipe()

    def stop(self) -> None:
        """End the waiting: what has been read is still given. May be called from a signal handler."""
        self._is_stopped.set()
        os.write(self._waker, b"x")

    def batches(self) -> Iterator[Batch]:
        """Give the lines that are there, as soon as there is one; the last one may lack its end."""
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        pending: list[bytes] = []  # parts of a line that has no end yet
        while (block := self._blocks.get()) is not None:
            if isinstance(block, OSError):
                raise block
            self._ahead.release()
            if block == _BEGUN_ANEW:
                pending, self._position = [], 0
            elif b"\n" in block or sum(map(len, pending)) > _LONGEST:
                *lines, rest = b"".join([*pending, block]).split(b"\n")
                yield from self._parted(lines or [rest])
                pending = [rest] if lines else []
            else:
                pending.append(block)
        if any(pending) and not self._is_stopped.is_set():
            yield from self._parted([b"".join(pending)])

    def _parted(self, lines: list[bytes]) -> Iterator[Batch]:
        for first in range(0, len(lines), _MOST_LINES):
            if self._follow and self._is_stopped.is_set():
                return  # a file can be gone on with
            some = lines[first : first + _MOST_LINES]
            self._position += sum(map(len, some)) + len(some)
            yield Batch([line.removesuffix(b"\r") for line in some], self._position)

    def _read(self) -> None:
        try:
            while True:
                self._ahead.acquire()
                block = self._next()
                if block is None:
                    break
                self._blocks.put(block)
        except OSError as error:
            self._blocks.put(error)
        self._blocks.put(None)

    def _next(self) -> bytes | None:
        """Wait for the next block; nothing comes after the end, or when it was stopped."""
        while not self._is_stopped.is_set():
            ready, _, _ = select.select([self._descriptor, self._woken], [], [])
            if self._woken in ready:
                return None
            block = os.read(self._descriptor, _BLOCK_BYTES)
            if block or not self._follow:
                return block or None
            self._is_stopped.wait(_NAP)
            if os.fstat(self._descriptor).st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                return _BEGUN_ANEW
        return None
