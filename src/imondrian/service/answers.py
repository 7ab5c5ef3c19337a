"""Answers: JSON made of what came of a request, and those that were given, so that no request is done twice."""

import json
from collections import OrderedDict
from concurrent.futures import Future
from typing import NamedTuple

from imondrian.errors import InvalidInputError
from imondrian.service.doing import Outcome, Said
from imondrian.service.entries import MODEL, NEW_MODEL, Answer, Entry, Given, digest_of

_FLAGS = ("false", "true")


def answer_to(kind: str, outcome: Outcome) -> Answer:
    """Write what came of a request of a kind."""
    if isinstance(outcome, InvalidInputError):
        return Answer(422, json.dumps({"detail": str(outcome)}).encode())
    if isinstance(outcome, int):
        return Answer(201 if kind == NEW_MODEL else 200, json.dumps({"n_points": outcome}).encode())
    return Answer(200, f'{{"results": [{_records(outcome)}]}}'.encode())


def given_to(entry: Entry, request: str, answer: Answer) -> Given:
    """Note the answer to an entry whose request had an id."""
    kind = MODEL if entry.kind == NEW_MODEL else entry.kind  # the same request makes a detector or replaces its state
    return Given(entry.number, request, digest_of(kind, entry.content), answer)


def _records(rows: list[Said]) -> str:
    """Write one object per row; all numbers are finite."""
    return ", ".join(
        f'{{"index": {i}, "anomaly_score": {score!r}, "threshold": {limit!r}, "is_anomaly": {_FLAGS[odd]}}}'
        for i, score, limit, odd in rows
    )


class _Asked(NamedTuple):
    sent: bytes
    future: Future[Answer]


class Answers:
    """Answers by request, and requests that wait for theirs; the oldest are forgotten, by number and by bytes.

    Parameters
    ----------
    n_most, bytes_most : int
        How many answers are remembered, and how large they may be together.
    """

    def __init__(self, n_most: int, bytes_most: int) -> None:
        self._n_most, self._bytes_most = n_most, bytes_most
        self._waiting: dict[str, _Asked] = {}
        self._given: OrderedDict[str, Given] = OrderedDict()
        self._n_bytes = 0

    @property
    def oldest(self) -> int:
        """Number of the oldest entry whose answer is remembered; 0 without any."""
        return next(iter(self._given.values())).number if self._given else 0

    def find(self, request: str, sent: bytes) -> Future[Answer] | None:
        """Give the answer to a request that was sent before, or what it waits for; another under its id is an error."""
        known = self._given.get(request) or self._waiting.get(request)
        if known is None:
            return None
        if known.sent != sent:
            raise InvalidInputError(f"The id {request!r} was given to another request before.")
        if isinstance(known, _Asked):
            return known.future
        future: Future[Answer] = Future()
        future.set_result(known.answer)
        return future

    def wait(self, request: str, sent: bytes, future: Future[Answer]) -> None:
        """Note that a request waits for its answer."""
        self._waiting[request] = _Asked(sent, future)

    def refuse(self, request: str) -> None:
        """Note that a request was not done: it may come again."""
        self._waiting.pop(request, None)

    def give(self, given: Given) -> None:
        """Remember an answer."""
        self._waiting.pop(given.request, None)
        before = self._given.pop(given.request, None)
        self._n_bytes -= 0 if before is None else len(before.answer.content)
        self._given[given.request] = given
        self._n_bytes += len(given.answer.content)
        while len(self._given) > self._n_most or (self._n_bytes > self._bytes_most and len(self._given) > 1):
            self._n_bytes -= len(self._given.popitem(last=False)[1].answer.content)

    def since(self, number: int) -> list[Given]:
        """List the answers to entries after a number, the oldest first."""
        newest: list[Given] = []
        for given in reversed(self._given.values()):
            if given.number <= number:
                break
            newest.append(given)
        return newest[::-1]
