"""What is done to a detector, as the journal has it; doing it again gives the same, to the last bit."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.errors import DamagedFileError, InvalidInputError
from imondrian.model_files import from_bytes
from imondrian.service.entries import FORGET, MODELS, POINTS, Entry
from imondrian.stream import StreamDetector


class Said(NamedTuple):
    """What is said of a row."""

    number: int  # in the stream, counted from 0
    score: float
    threshold: float
    is_anomaly: bool


POINTS_TOGETHER = 1_024  # of a detector, learned without a pause
Outcome = list[Said] | int | InvalidInputError
Changing = Callable[[], AbstractContextManager[None]]


class Doer:
    """A detector, and how entries of the journal change it."""

    def __init__(self, detector: StreamDetector) -> None:
        self.detector = detector

    def do(self, entries: Iterable[Entry], changing: Changing = nullcontext) -> list[Outcome]:
        """Do one entry after the other, those of points together; give what came of each.

        Each change of the detector, of at most so many points, is made within a context of its own.
        """
        outcomes: list[Outcome] = []
        for kind, some in groupby(entries, key=lambda entry: entry.kind):
            contents = [entry.content for entry in some]
            if kind == POINTS:
                outcomes += self._learn(contents, changing)
                continue
            for content in contents:
                with changing():
                    outcomes.append(self._do_one(kind, content))
        return outcomes

    def _learn(self, contents: list[bytes], changing: Changing) -> list[Outcome]:
        """Score and learn the points of several entries at once: the same as one after the other."""
        n_features = self.detector.parameters["n_features"]
        points, said = points_from(b"".join(contents), n_features), list[Said]()
        for first in range(0, len(points), POINTS_TOGETHER):
            with changing():
                results = self.detector.process_many(points[first : first + POINTS_TOGETHER])
            columns = (results.index, results.score, results.threshold, results.is_anomaly)
            said += map(Said._make, zip(*(column.tolist() for column in columns), strict=True))
        ends = list(accumulate(len(content) // (8 * n_features) for content in contents))
        return [said[first:end] for first, end in zip([0, *ends], ends, strict=False)]

    def _do_one(self, kind: str, content: bytes) -> Outcome:
        if kind in MODELS:
            self.detector = detector_from(content)
            return self.detector.n_seen
        if kind != FORGET:
            raise NotImplementedError(f"Entries of the kind {kind!r} are not known.")
        points = points_from(content, self.detector.parameters["n_features"])
        try:
            self.detector.forget(points)
        except InvalidInputError as error:  # nothing has changed; and so it will be when it is done again
            return error
        return len(points)


def points_from(content: bytes, n_features: int) -> Array:
    """Read points as they are journalled."""
    return np.frombuffer(bytearray(content), "<f8").reshape(-1, n_features)


def detector_from(content: bytes) -> StreamDetector:
    """Read a detector from a model file; that there is not enough memory is not the fault of the file."""
    try:
        model: Any = from_bytes(content)
    except DamagedFileError as error:
        if isinstance(error.__context__, MemoryError):
            raise MemoryError(str(error)) from None  # noqa: TRY004 (of what was raised)
        raise
    if not isinstance(model, StreamDetector):
        raise DamagedFileError("The model file is not that of a StreamDetector.")
    return model
