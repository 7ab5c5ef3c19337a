"""Lines of a stream, in batches, as soon as they arrive."""

import os
import selectors
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

BLOCK_BYTES = 2**16
CONTEXT_BYTES = 256  # number of bytes before a position that are stored to recognise the position later
_BLOCKS_AHEAD = 1  # number of blocks to read while another one is processed
_MAX_LINES = 1024  # per batch; with shorter batches, the trees would be loaded into the cache more often
_MAX_LINE_BYTES = 2**26  # a longer line is split into several
_PAUSE = b""  # takes the place of a block if none has arrived for a while
_SIGNAL_SECONDS = 0.5  # longest time until a signal or a pause is noticed


class Restart(Enum):
    """Why a file is read from its start."""

    TRUNCATED = "truncated"
    REPLACED = "replaced"


class LineBatch(NamedTuple):
    """Consecutive lines, without their line ends."""

    lines: list[bytes]
    position: int  # in the file, after these lines
    context: bytes = b""  # the last bytes before the position
    restart: Restart | None = None  # the next lines are those of a new or truncated file
    text: bytes = b""  # the lines as they are in the file
    context_before: bytes = b""  # the last bytes before the text

    def after(self, n_lines: int) -> tuple[int, bytes]:
        """Return the position in the file after the first `n_lines` lines, and the last bytes before it."""
        if n_lines == len(self.lines):
            return self.position, self.context
        n_bytes = sum(len(line) + 1 for line in self.text.split(b"\n", n_lines)[:n_lines])
        context = (self.context_before + self.text[:n_bytes])[-CONTEXT_BYTES:]
        return self.position - len(self.text) + n_bytes, context


class BlockSource(Protocol):
    """A source of blocks of bytes."""

    can_be_read_again: bool  # True: lines that were not processed can be read again by a later run

    def next_block(self, wake_up: int) -> bytes | Restart | None:
        """Wait for the next bytes; return None at the end, or as soon as the descriptor `wake_up` can be read."""


class Pipe:
    """The bytes of a descriptor up to its end: a pipe, a terminal, or a file that does not grow."""

    can_be_read_again = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def next_block(self, wake_up: int) -> bytes | None:
        """Wait for the next bytes."""
        ready = readable(self._descriptor, wake_up)
        return None if wake_up in ready else os.read(self._descriptor, BLOCK_BYTES) or None


def readable(*descriptors: int, timeout: float | None = None) -> set[int]:
    """Wait until at least one descriptor can be read, or until the timeout in seconds; return those that can be."""
    # select refuses descriptors from 1,024 on, and epoll refuses files
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(timeout)}


class Lines:
    """Lines of a source, read by a separate thread, so that waiting for them can be interrupted.

    Parameters
    ----------
    source : BlockSource
        Where to read from.
    position : int, default=0
        Position of the first block in the file.
    context : bytes, default=b""
        The last bytes before that position.
    reports_pauses : bool, default=False
        Whether to yield a batch without lines whenever nothing has arrived for half a second, or what has arrived is
        only a part of a line.
    """

    def __init__(
        self, source: BlockSource, position: int = 0, context: bytes = b"", *, reports_pauses: bool = False
    ) -> None:
        self._source = source
        self._position = position
        self._context = context
        self._reports_pauses = reports_pauses
        self._blocks: SimpleQueue[bytes | Restart | Exception | None] = SimpleQueue()
        self._ahead = threading.Semaphore(_BLOCKS_AHEAD)
        self._is_stopped = threading.Event()
        self._wake_up, self._wake_up_writer = os.pipe()

    def stop(self) -> None:
        """Stop waiting; lines that were already read from a pipe are still returned. Safe in a signal handler."""
        self._is_stopped.set()
        os.write(self._wake_up_writer, b"x")

    def batches(self) -> Iterator[LineBatch]:
        """Yield all available lines as soon as there is at least one; the last line of a file may lack a line end."""
        threading.Thread(target=self._read, daemon=True).start()
        pending: list[bytes] = []  # parts of a line without its end
        while (block := self._next_block()) is not None:
            if isinstance(block, Exception):
                raise block
            if block == _PAUSE:
                yield from self._pause()
                continue
            self._ahead.release()
            if isinstance(block, Restart):
                if block is Restart.REPLACED:  # the previous file no longer grows
                    yield from self._unfinished_line(pending)
                pending, self._position, self._context = [], 0, b""
                yield LineBatch([], 0, restart=block)
            elif b"\n" in block:
                *lines, rest = b"".join([*pending, block]).split(b"\n")
                yield from self._in_batches(lines, b"\n")
                pending = [rest]
            else:
                pending.append(block)
                if sum(map(len, pending)) > _MAX_LINE_BYTES:
                    yield from self._unfinished_line(pending)
                    pending = []
                yield from self._pause()
        if not self._is_stopped.is_set():
            yield from self._unfinished_line(pending)

    def _next_block(self) -> bytes | Restart | Exception | None:
        """Wait for a block; return an empty one after half a second.

        The waits are short because a signal that arrives just before a wait does not interrupt it.
        """
        with suppress(Empty):
            return self._blocks.get(timeout=_SIGNAL_SECONDS)
        return _PAUSE

    def _pause(self) -> Iterator[LineBatch]:
        if self._reports_pauses:
            yield LineBatch([], self._position, self._context)

    def _unfinished_line(self, pending: list[bytes]) -> Iterator[LineBatch]:
        """Yield a line that has no line end."""
        if any(pending):
            yield from self._in_batches([b"".join(pending)], b"")

    def _in_batches(self, lines: list[bytes], end: bytes) -> Iterator[LineBatch]:
        for first in range(0, len(lines), _MAX_LINES):
            if self._source.can_be_read_again and self._is_stopped.is_set():
                return
            batch = lines[first : first + _MAX_LINES]
            text, context = b"\n".join(batch) + end, self._context
            self._position += len(text)
            self._context = (context + text)[-CONTEXT_BYTES:]
            stripped = [line.removesuffix(b"\r") for line in batch]
            yield LineBatch(stripped, self._position, self._context, text=text, context_before=context)

    def _read(self) -> None:
        try:
            while True:
                self._ahead.acquire()
                block = None if self._is_stopped.is_set() else self._source.next_block(self._wake_up)
                if block is None:
                    break
                self._blocks.put(block)
        except Exception as error:  # noqa: BLE001 (raised again by `batches`, which would wait for ever otherwise)
            self._blocks.put(error)
        self._blocks.put(None)
