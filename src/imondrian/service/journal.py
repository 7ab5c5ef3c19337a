"""Journal entries, how they change a detector, and the versions that scores depend on.

Under the same versions, applying the same entries to the same state gives the same result to the last bit.
"""

import hashlib
import platform
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding
import numba
import numpy as np

import imondrian
from imondrian.engine.jit import Array
from imondrian.errors import DamagedFileError, InvalidInputError, NotHeldError
from imondrian.model_files import from_bytes
from imondrian.named_rows import CodedRows
from imondrian.service.limits import Limits
from imondrian.service.posted_rows import PostedRows
from imondrian.service.row_labels import with_labels, without_labels
from imondrian.stream import StreamDetector

POINTS, FORGET, MODEL = "points", "forget", "model"
LABELLED_POINTS = "labelled points"  # points with categories, or with their own times
NEW_MODEL = "new model"  # the detector was created from a model file: always the first entry of a journal
MODELS = (MODEL, NEW_MODEL)


class Entry(NamedTuple):
    """A change to a detector."""

    number: int  # counted from 1
    kind: str
    content: bytes
    request: str | None  # the id of the request, given by the client
    time: float  # of arrival, in seconds since 1970

    def points_and_labels(self) -> tuple[bytes, bytes]:
        """Return the points to learn, and their labels, both empty if there are none."""
        if self.kind == LABELLED_POINTS:
            return without_labels(self.content)
        return (self.content if self.kind == POINTS else b""), b""


def entry_of_points(rows: PostedRows) -> tuple[str, bytes]:
    """Return the kind and the content of an entry that learns rows."""
    points = rows.points.tobytes()
    return (LABELLED_POINTS, with_labels(points, rows.labels.to_bytes())) if rows.labels else (POINTS, points)


def checked_request_id(request: str | None, limits: Limits) -> str | None:
    """Return the id of a request, which may be None; raise InvalidInputError if it is invalid."""
    max_length = limits.request_id_length
    is_valid = request is None or (
        0 < len(request) <= max_length and all("!" <= character <= "~" for character in request)
    )
    if not is_valid:
        raise InvalidInputError(
            f"The id of a request must be 1 to {max_length} visible ASCII characters, but is {request!r:.200}."
        )
    return request


def digest_of(*values: object) -> bytes:
    """Return a digest of values of any type, each with its length."""
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        content = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(b"%d:" % len(content))
        digest.update(content)
    return digest.digest()


class ScoredRow(NamedTuple):
    """A row of the stream with its score."""

    number: int  # in the stream, counted from 0
    score: float
    threshold: float
    is_anomaly: bool


POINTS_PER_LOCK = 1_024  # maximum number of points learned before the lock is released
Outcome = list[ScoredRow] | int | InvalidInputError
LockFactory = Callable[[], AbstractContextManager[None]]


class EntryApplier:
    """Applies journal entries to a detector.

    Attributes
    ----------
    detector : StreamDetector
        Replaced by an entry that contains a model.
    """

    def __init__(self, detector: StreamDetector) -> None:
        self.detector = detector

    def apply(self, entries: Iterable[Entry], lock: LockFactory = nullcontext) -> list[Outcome]:
        """Apply entries in order, and return the outcome of each.

        Consecutive entries with points are learned together. The lock is acquired for each change, and released after
        at most `POINTS_PER_LOCK` points.

        Returns
        -------
        list
            For each entry: the scored rows (points), the number of points forgotten (forget) or seen by the new
            detector (model), or the error if points could not be forgotten.
        """
        outcomes: list[Outcome] = []
        for has_points, group in groupby(entries, key=lambda entry: entry.kind in (POINTS, LABELLED_POINTS)):
            if has_points:
                outcomes += self._learn([entry.points_and_labels()[0] for entry in group], lock)
                continue
            for entry in group:
                with lock():
                    outcomes.append(self._apply_one(entry.kind, entry.content))
        return outcomes

    def _learn(self, contents: list[bytes], lock: LockFactory) -> list[Outcome]:
        """Score and learn the points of several entries together; the result is the same as one entry at a time."""
        n_features = self.detector.parameters["n_features"]
        points, rows = points_from(b"".join(contents), n_features), list[ScoredRow]()
        for first in range(0, len(points), POINTS_PER_LOCK):
            with lock():
                results = self.detector.process_many(points[first : first + POINTS_PER_LOCK])
            columns = (results.index, results.score, results.threshold, results.is_anomaly)
            rows += map(ScoredRow._make, zip(*(column.tolist() for column in columns), strict=True))
        ends = list(accumulate(len(content) // (8 * n_features) for content in contents))
        return [rows[first:end] for first, end in zip([0, *ends], ends, strict=False)]

    def _apply_one(self, kind: str, content: bytes) -> Outcome:
        if kind in MODELS:
            self.detector = detector_from(content)
            return self.detector.n_seen
        if kind != FORGET:
            raise NotImplementedError(f"Unknown kind of journal entry: {kind!r}.")
        points = points_from(content, self.detector.parameters["n_features"])
        try:
            self.detector.forget(points)
        except InvalidInputError as error:  # nothing has changed, and a replay gives the same error
            return self._without_codes(error)
        return len(points)

    def _without_codes(self, error: InvalidInputError) -> InvalidInputError:
        """Return an error without the codes of categories, which mean nothing to the client."""
        if isinstance(error, NotHeldError) and self.detector.parameters["categorical"]:
            return InvalidInputError(f"Point {error.row} is not in the window, or the request has it too often.")
        return error


def points_from(content: bytes, n_features: int) -> Array:
    """Return the points of a journal entry; raise InvalidInputError if its length is wrong."""
    if len(content) % (8 * n_features):
        raise InvalidInputError(f"{len(content)} bytes are not a multiple of {8 * n_features}, the size of a point.")
    return np.frombuffer(bytearray(content), "<f8").reshape(-1, n_features).view(CodedRows)


def detector_from(content: bytes) -> StreamDetector:
    """Return the detector in a model file; raise MemoryError, not DamagedFileError, if memory is short."""
    try:
        model: Any = from_bytes(content)
    except DamagedFileError as error:
        if isinstance(error.__context__, MemoryError):
            raise MemoryError(str(error)) from None  # noqa: TRY004 (the original error)
        raise
    if not isinstance(model, StreamDetector):
        raise DamagedFileError("The model file does not contain a StreamDetector.")
    return model


Versions = dict[str, str]


def current_versions() -> Versions:
    """Return the versions that scores of this process depend on: packages, Python, C library and processor."""
    return {
        "imondrian": imondrian.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "libc": " ".join(platform.libc_ver()).strip(),
        "machine": platform.machine(),
        "processor": numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name(),
        "instructions": _instructions(),
    }


def difference(before: Versions, now: Versions) -> str:
    """Return which versions differ, as text; `before` is empty if they are unknown."""
    if not before:
        return "unknown versions"
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'unknown')}, now {now.get(name, 'unknown')}" for name in names)


def _instructions() -> str:
    """Return a digest of the instruction sets used: processors of the same name may differ in them."""
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    return hashlib.blake2b(features.encode(), digest_size=4).hexdigest()
