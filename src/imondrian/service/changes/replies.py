"""Replies to requests that change a detector. They are saved by request id, so that no request is processed twice."""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from operator import attrgetter
from typing import NamedTuple

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
_DROPPED_PART = 8  # dropping single replies would be slow with many detectors
_BYTES_PER_REPLY = 512  # memory that a reply takes besides its content: its id, its digest and the objects


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
    """The memory that the saved replies of all detectors share; if they exceed it, replies are dropped.

    The detector whose replies take most memory drops the oldest, an eighth of them by size. The latest reply of each
    detector is kept as long as possible: only if the latest ones alone exceed the memory, those saved longest ago are
    dropped.

    Parameters
    ----------
    max_bytes : int
        The maximum total size of all saved replies; a single reply may be larger.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes, self.lock = max_bytes, threading.Lock()
        self._detectors: dict[int, SavedReplies] = {}
        self._n_saved = 0

    def new_replies(self, detector: int, max_replies: int, max_bytes: int) -> "SavedReplies":
        """Return empty `SavedReplies` for a detector; they replace those that it had."""
        replies = SavedReplies(self, max_replies, max_bytes)
        with self.lock:
            self._detectors[detector] = replies
        return replies

    def remove(self, detector: int) -> None:
        """Stop counting the replies of a detector, which was removed."""
        with self.lock:
            self._detectors.pop(detector, None)

    def next_number(self) -> int:
        """Return the next number for `SavedReplies.number`; the caller holds the lock."""
        self._n_saved += 1
        return self._n_saved

    def make_room(self) -> None:
        """Drop replies until all together fit; other threads can get the lock in between."""
        while self._drop_some():
            pass

    def _drop_some(self) -> bool:
        """Drop some replies of one detector, if all together do not fit; return False if nothing was dropped."""
        with self.lock:
            detectors = [each for each in self._detectors.values() if each.n_replies]
            if sum(each.n_bytes for each in detectors) <= self._max_bytes:
                return False
            first = min(detectors, key=attrgetter("priority"))
            is_newest = first.n_replies == 1 and first.number == self._n_saved
            if not is_newest:
                first.drop_some()
            return not is_newest


class SavedReplies:
    """Replies by request id, and requests that wait for a reply; the oldest replies are dropped if there are too many.

    Parameters
    ----------
    memory : ReplyMemory
        The memory shared with the replies of other detectors.
    max_replies, max_bytes : int
        The maximum number of replies stored, and their maximum total size; the latest reply may be larger.

    Attributes
    ----------
    n_bytes : int
        Total size of the replies stored.
    oldest : int
        Number of the oldest entry whose reply may be stored: all earlier replies were dropped.
    number : int
        Replies of all detectors are counted as they are saved; this is the count at the latest one of this detector.
    """

    def __init__(self, memory: ReplyMemory, max_replies: int, max_bytes: int) -> None:
        self._memory, self._max_replies, self._max_bytes = memory, max_replies, max_bytes
        self._pending: dict[str, _PendingReply] = {}
        self._saved: OrderedDict[str, SavedReply] = OrderedDict()
        self.n_bytes = self.oldest = self.number = 0

    @property
    def n_replies(self) -> int:
        """Number of replies stored."""
        return len(self._saved)

    @property
    def priority(self) -> tuple[bool, int]:
        """The detector with the lowest value drops replies first."""
        has_others = len(self._saved) > 1
        return not has_others, -self.n_bytes if has_others else self.number

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
        """Save replies, oldest first; `make_room` must follow."""
        with self._memory.lock:
            for saved in replies:
                self._add(saved)
                self.number = self._memory.next_number()

    def make_room(self) -> None:
        """Drop replies of any detectors if all together exceed the memory; the caller holds no lock."""
        self._memory.make_room()

    def _add(self, saved: SavedReply) -> None:
        self._pending.pop(saved.request, None)
        previous = self._saved.pop(saved.request, None)
        self.n_bytes += saved.n_bytes - (0 if previous is None else previous.n_bytes)
        self._saved[saved.request] = saved
        while len(self._saved) > self._max_replies or (self.n_bytes > self._max_bytes and len(self._saved) > 1):
            self._drop_oldest()

    def drop_some(self) -> None:
        """Drop the oldest replies, an eighth of them by size; the caller holds the lock."""
        n_most = self.n_bytes - self.n_bytes // _DROPPED_PART
        self._drop_oldest()
        while len(self._saved) > 1 and self.n_bytes > n_most:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, dropped = self._saved.popitem(last=False)
        self.n_bytes -= dropped.n_bytes
        self.oldest = dropped.number + 1

    def since(self, number: int) -> list[SavedReply]:
        """Return the replies to entries after entry `number`, oldest first."""
        newest: list[SavedReply] = []
        with self._memory.lock:
            for saved in reversed(self._saved.values()):
                if saved.number <= number:
                    break
                newest.append(saved)
        return newest[::-1]
