"""Replies to requests that change a detector. They are saved by request id, so that no request is processed twice."""

import json
from collections import OrderedDict
from concurrent.futures import Future
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


class SavedReplies:
    """Replies by request id, and requests that wait for a reply; the oldest replies are dropped if there are too many.

    Parameters
    ----------
    max_replies, max_bytes : int
        The maximum number of replies stored, and their maximum total size.
    """

    def __init__(self, max_replies: int, max_bytes: int) -> None:
        self._max_replies, self._max_bytes = max_replies, max_bytes
        self._pending: dict[str, _PendingReply] = {}
        self._saved: OrderedDict[str, SavedReply] = OrderedDict()
        self._n_bytes = 0

    @property
    def oldest(self) -> int:
        """Number of the oldest entry whose reply is stored; 0 if there is none."""
        return next(iter(self._saved.values())).number if self._saved else 0

    def find(self, request: str, request_digest: bytes) -> Future[Reply] | None:
        """Return the reply to a repeated request as a future, or None if its id is new.

        Raise InvalidInputError if the id was used for a different request.
        """
        found = self._saved.get(request) or self._pending.get(request)
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

    def add(self, saved: SavedReply) -> None:
        """Save a reply."""
        self._pending.pop(saved.request, None)
        previous = self._saved.pop(saved.request, None)
        self._n_bytes -= 0 if previous is None else len(previous.reply.content)
        self._saved[saved.request] = saved
        self._n_bytes += len(saved.reply.content)
        while len(self._saved) > self._max_replies or (self._n_bytes > self._max_bytes and len(self._saved) > 1):
            self._n_bytes -= len(self._saved.popitem(last=False)[1].reply.content)

    def since(self, number: int) -> list[SavedReply]:
        """Return the replies to entries after entry `number`, oldest first."""
        newest: list[SavedReply] = []
        for saved in reversed(self._saved.values()):
            if saved.number <= number:
                break
            newest.append(saved)
        return newest[::-1]
