"""Lines as they arrive, in batches of what there is."""

import os
import select
import threading
from collections.abc import Iterator
from enum import Enum
from queue import SimpleQueue
from typing import NamedTuple, Protocol

BLOCK_BYTES = 2**16
KNOWN_BYTES = 256  # before a position, by which it can be recognised
_BLOCKS_AHEAD = 1  # that are read while another is worked on
_MOST_LINES = 1024  # of a batch; in shorter ones, trees are fetched into the cache too often
_LONGEST = 2**26


class Restart(Enum):
    """Why a file is read from its start."""

    CUT = "cut"
    REPLACED = "replaced"


class Batch(NamedTuple):
    """Some lines, without their ends."""

    lines: list[bytes]
    position: int  # in the file, behind them
    before: bytes = b""  # the last bytes before the position
    restart: Restart | None = None  # the lines that follow are those of a new file, or of a file that was cut
    text: bytes = b""  # the lines as they stand in the file
    before_text: bytes = b""  # the last bytes before them

    def after(self, n_lines: int) -> tuple[int, bytes]:
        """Return the position in the file after the first lines, and the last bytes before that position."""
        if n_lines == len(self.lines):
            return self.position, self.before
        n_bytes = sum(len(line) + 1 for line in self.text.split(b"\n", n_lines)[:n_lines])
        known = (self.before_text + self.text[:n_bytes])[-KNOWN_BYTES:]
        return self.position - len(self.text) + n_bytes, known


class Blocks(Protocol):
    """What lines are read from."""

    can_be_read_again: bool  # whether lines that have not been given can be left for another time

    def next_block(self, woken: int) -> bytes | Restart | None:
        """Wait for the next bytes; None at the end, or as soon as the descriptor `woken` can be read."""


class Pipe:
    """The bytes of a descriptor up to its end: those of a pipe, a terminal, or a file that does not grow."""

    can_be_read_again = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def next_block(self, woken: int) -> bytes | None:
        """Wait for the next bytes."""
        ready, _, _ = select.select([self._descriptor, woken], [], [])
        return None if woken in ready else os.read(self._descriptor, BLOCK_BYTES) or None


class Lines:
    """Lines of blocks of bytes, read on a thread of their own so that waiting for them can be ended.

    Parameters
    ----------
    blocks : Blocks
        What to read from.
    position : int, default=0
        Where in the file the first block stands.
    before : bytes, default=b""
        The last bytes before that position.
    """

    def __init__(self, blocks: Blocks, position: int = 0, before: bytes = b"") -> None:
        self._source = blocks
        self._position = position
        self._before = before
        self._blocks: SimpleQueue[bytes | Restart | OSError | None] = SimpleQueue()
        self._ahead = threading.Semaphore(_BLOCKS_AHEAD)
        self._is_stopped = threading.Event()
        self._woken, self._waker = os.pipe()

    def stop(self) -> None:
        """End the waiting: what has been read from a pipe is still given. May be called from a signal handler."""
        self._is_stopped.set()
        os.write(self._waker, b"x")

    def batches(self) -> Iterator[Batch]:
        """Give the lines that are there, as soon as there is one; the last one of a file may lack its end."""
        threading.Thread(target=self._read, daemon=True).start()
        pending: list[bytes] = []  # parts of a line that has no end yet
        while (block := self._blocks.get()) is not None:
            if isinstance(block, OSError):
                raise block
            self._ahead.release()
            if isinstance(block, Restart):
                if block is Restart.REPLACED:  # nothing is added to the file before it any more
                    yield from self._unfinished(pending)
                pending, self._position, self._before = [], 0, b""
                yield Batch([], 0, restart=block)
            elif b"\n" in block:
                *lines, rest = b"".join([*pending, block]).split(b"\n")
                yield from self._parted(lines, b"\n")
                pending = [rest]
            else:
                pending.append(block)
                if sum(map(len, pending)) > _LONGEST:
                    yield from self._unfinished(pending)
                    pending = []
        if not self._is_stopped.is_set():
            yield from self._unfinished(pending)

    def _unfinished(self, pending: list[bytes]) -> Iterator[Batch]:
        """Give a line that has no end."""
        if any(pending):
            yield from self._parted([b"".join(pending)], b"")

    def _parted(self, lines: list[bytes], end: bytes) -> Iterator[Batch]:
        for first in range(0, len(lines), _MOST_LINES):
            if self._source.can_be_read_again and self._is_stopped.is_set():
                return
            some = lines[first : first + _MOST_LINES]
            text, before = b"\n".join(some) + end, self._before
            self._position += len(text)
            self._before = (before + text)[-KNOWN_BYTES:]
            whole = [line.removesuffix(b"\r") for line in some]
            yield Batch(whole, self._position, self._before, text=text, before_text=before)

    def _read(self) -> None:
        try:
            while True:
                self._ahead.acquire()
                block = None if self._is_stopped.is_set() else self._source.next_block(self._woken)
                if block is None:
                    break
                self._blocks.put(block)
        except OSError as error:
            self._blocks.put(error)
        self._blocks.put(None)
