"""Replies to requests that change a detector. They are saved by request id, so that no request is processed twice."""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from heapq import heapify, heapreplace
from typing import NamedTuple
from weakref import WeakSet

from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.journal import (
    FORGET_KEY,
    MODEL,
    NEW_MODEL,
    Entry,
    KeyedOutcome,
    Outcome,
    ScoredRow,
    digest_of,
)
from imondrian.service.changes.keyed_rows import LearnedRow

_FLAGS = ("false", "true")
_BYTES_PER_REPLY = 512  # memory that a reply takes beside its content: its id, its digest and the objects


class Reply(NamedTuple):
    """An HTTP status and a JSON body; a repeated request gets the same bytes."""

    status: int
    content: bytes


class SavedReply(NamedTuple):
    """The reply to a request with an id."""

    number: int  # of the journal entry
    request: str
    request_digest: bytes
    reply: Reply

    @property
    def n_bytes(self) -> int:
        """Memory that the reply takes."""
        return _BYTES_PER_REPLY + len(self.reply.content)


def reply_to(kind: str, outcome: Outcome | KeyedOutcome) -> Reply:
    """Return the reply to a request, from the kind of its entry and the outcome."""
    if isinstance(outcome, InvalidInputError):
        return Reply(404 if kind == FORGET_KEY else 422, json.dumps({"detail": str(outcome)}).encode())
    if isinstance(outcome, dict):
        return Reply(200, json.dumps(outcome).encode())
    if isinstance(outcome, int):
        return Reply(201 if kind == NEW_MODEL else 200, json.dumps({"n_points": outcome}).encode())
    return Reply(200, f'{{"results": [{", ".join(map(_record, outcome))}]}}'.encode())


def saved_reply_to(entry: Entry, request: str, reply: Reply) -> SavedReply:
    """Return the reply to an entry in the form in which it is saved, by request id."""
    # the request that created the detector has the kind MODEL when it is repeated, since the detector then exists
    kind = MODEL if entry.kind == NEW_MODEL else entry.kind
    return SavedReply(entry.number, request, digest_of(kind, entry.content), reply)


def _record(row: ScoredRow | LearnedRow) -> str:
    """Return the result of a row as a JSON object; all its numbers are finite."""
    if isinstance(row, LearnedRow):
        key = json.dumps(row.key, ensure_ascii=False)
        return f'{{"key": {key}, {_result(row)}, "is_borrowed": {_FLAGS[row.is_borrowed]}}}'
    return f"{{{_result(row)}}}"


def _result(row: ScoredRow | LearnedRow) -> str:
    return (
        f'"index": {row.number}, "anomaly_score": {row.score!r}, "surprise": {row.surprise!r},'
        f' "threshold": {row.threshold!r}, "is_anomaly": {_FLAGS[row.is_anomaly]},'
        f' "incident": {"null" if row.incident < 0 else row.incident}'
    )


class _PendingReply(NamedTuple):
    request_digest: bytes
    future: Future[Reply]


class ReplyMemory:
    """The memory that the saved replies of all detectors share; if they exceed it, the oldest replies are dropped.

    They are dropped where most memory is used: each of n detectors can keep at least 1/n of the memory. The latest
    reply of a detector is dropped only if the latest replies alone exceed the memory.

    Parameters
    ----------
    max_bytes : int
        The maximum total size of all saved replies.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.lock = max_bytes, threading.Lock()
        self._detectors = WeakSet[SavedReplies]()  # the replies of a removed detector leave it by themselves

    def register(self, replies: "SavedReplies") -> None:
        """Count the replies of one more detector."""
        with self.lock:
            self._detectors.add(replies)

    def make_room(self) -> None:
        """Drop replies until all together fit; the caller holds the lock."""
        n_too_many = sum(each.n_bytes for each in self._detectors) - self._max_bytes
        if n_too_many <= 0:
            return
        largest_first = [(each.priority, i, each) for i, each in enumerate(self._detectors)]
        heapify(largest_first)
        while n_too_many > 0:
            _, i, largest = largest_first[0]
            n_too_many -= largest.drop_oldest()
            heapreplace(largest_first, (largest.priority, i, largest))


class SavedReplies:
    """Replies by request id, and requests that wait for a reply; the oldest replies are dropped if there are too many.

    Parameters
    ----------
    memory : ReplyMemory
        The memory shared with the replies of other detectors.
    max_replies, max_bytes : int
        The maximum number of replies stored, and their maximum total size.

    Attributes
    ----------
    n_bytes : int
        Total size of the replies stored.
    oldest : int
        Number of the oldest entry whose reply may be stored: all earlier replies were dropped.
    """

    def __init__(self, memory: ReplyMemory, max_replies: int, max_bytes: int) -> None:
        self._memory, self._max_replies, self._max_bytes = memory, max_replies, max_bytes
        self._pending: dict[str, _PendingReply] = {}
        self._saved: OrderedDict[str, SavedReply] = OrderedDict()
        self.n_bytes = self.oldest = 0
        memory.register(self)

    @property
    def priority(self) -> tuple[int, int]:
        """The detector with the lowest value drops its oldest reply first; the caller holds the lock."""
        latest = next(reversed(self._saved.values())).n_bytes if self._saved else 0
        return latest - self.n_bytes, -latest

    def find(self, request: str, request_digest: bytes) -> Future[Reply] | None:
        """Return the reply to a repeated request as a future, or None if its id is new.

        Raise InvalidInputError if the id was used for a different request.
        """
        with self._memory.lock:
            saved = self._saved.get(request)
        found = saved or self._pending.get(request)
        if found is None:
            return None
        if found.request_digest != request_digest:
            raise InvalidInputError(f"The id {request!r} was already used for a different request.")
        if isinstance(found, _PendingReply):
            return found.future
        future: Future[Reply] = Future()
        future.set_result(found.reply)
        return future

    def add_pending(self, request: str, request_digest: bytes, future: Future[Reply]) -> None:
        """Record that a request waits for its reply."""
        self._pending[request] = _PendingReply(request_digest, future)

    def drop_pending(self, request: str) -> None:
        """Record that a request was refused, so that it may be sent again."""
        self._pending.pop(request, None)

    def add(self, replies: Iterable[SavedReply]) -> None:
        """Save replies, oldest first."""
        with self._memory.lock:
            for saved in replies:
                self._add(saved)
            self._memory.make_room()

    def _add(self, saved: SavedReply) -> None:
        self._pending.pop(saved.request, None)
        previous = self._saved.pop(saved.request, None)
        self.n_bytes += saved.n_bytes - (0 if previous is None else previous.n_bytes)
        self._saved[saved.request] = saved
        while len(self._saved) > self._max_replies or (self.n_bytes > self._max_bytes and len(self._saved) > 1):
            self.drop_oldest()

    def drop_oldest(self) -> int:
        """Drop the oldest reply and return its size; the caller holds the lock."""
        _, dropped = self._saved.popitem(last=False)
        self.n_bytes -= dropped.n_bytes
        self.oldest = dropped.number + 1
        return dropped.n_bytes

    def since(self, number: int) -> list[SavedReply]:
        """Return the replies to entries after entry `number`, oldest first."""
        newest: list[SavedReply] = []
        with self._memory.lock:
            for saved in reversed(self._saved.values()):
                if saved.number <= number:
                    break
                newest.append(saved)
        return newest[::-1]
