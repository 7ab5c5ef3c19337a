"""Lines as they arrive, from a pipe or from a file that grows, in batches of what there is."""

import os
import threading
from collections.abc import Iterator
from queue import SimpleQueue

_BLOCK_BYTES = 2**16
_BLOCKS_AHEAD = 4  # that are read before the first of them is done
_NAP = 0.2  # seconds between two looks at a file that has not grown
_LONGEST = 2**26


class Lines:
    """Lines of a file descriptor, read on a thread of their own so that waiting for them can be ended.

    Parameters
    ----------
    descriptor : int
        What to read from.
    follow : bool, default=False
        At the end of a file wait for more, as ``tail -f`` does; a file that becomes shorter is read from its start.
    """

    def __init__(self, descriptor: int, *, follow: bool = False) -> None:
        self._descriptor = descriptor
        self._follow = follow
        self._blocks: SimpleQueue[bytes | OSError | None] = SimpleQueue()
        self._ahead = threading.Semaphore(_BLOCKS_AHEAD)
        self._is_stopped = threading.Event()
        self.n_restarts = 0  # how often the file began anew

    def stop(self) -> None:
        """End the waiting: what has been read is still given. May be called from a signal handler."""
        self._is_stopped.set()
        self._blocks.put(None)

    def batches(self) -> Iterator[list[bytes]]:
        """Give the lines that are there, without their ends, as soon as there is one; a last one may lack its end."""
        threading.Thread(target=self._read, daemon=True).start()
        rest = b""
        while (block := self._blocks.get()) is not None:
            if isinstance(block, OSError):
                raise block
            *lines, rest = (rest + block).split(b"\n")
            self._ahead.release()
            if len(rest) > _LONGEST:
                lines, rest = [*lines, rest], b""
            if lines:
                yield [line.removesuffix(b"\r") for line in lines]
        if rest and not self._is_stopped.is_set():
            yield [rest.removesuffix(b"\r")]

    def _read(self) -> None:
        try:
            while not self._is_stopped.is_set():
                self._ahead.acquire()
                block = os.read(self._descriptor, _BLOCK_BYTES)
                if block:
                    self._blocks.put(block)
                elif self._follow:
                    self._ahead.release()
                    self._wait()
                else:
                    break
        except OSError as error:  # such as that of a file that was closed when it was stopped
            self._blocks.put(error)
        self._blocks.put(None)

    def _wait(self) -> None:
        """Wait a little; go back to the start of a file that has been cut."""
        self._is_stopped.wait(_NAP)
        if os.fstat(self._descriptor).st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR):
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            self.n_restarts += 1
