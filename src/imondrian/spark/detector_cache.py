"""Detectors between two micro-batches: bytes in Spark's state store, and in the worker as they are."""

from collections import OrderedDict

from imondrian.errors import DamagedFileError
from imondrian.model_files import from_bytes, to_bytes
from imondrian.sealed_zip import digest_of
from imondrian.stream import StreamDetector

_MAX_BYTES = 2**29  # of detectors that a worker keeps


class DetectorCache:
    """The detectors that a worker has written last: who asks for one of them need not read it.

    The state store alone says which state holds. A detector is kept under the digest of its bytes, so that one of
    another batch, or of an attempt that was given up, is never taken for it.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, StreamDetector] = OrderedDict()
        self._n_bytes = 0

    def take(self, content: bytes) -> StreamDetector:
        """Give the detector with these bytes, to be changed."""
        detector = self._kept.pop(digest_of(content), None)
        if detector is not None:
            self._n_bytes -= detector.n_bytes
            return detector
        read = from_bytes(content, "The state of a key")
        if not isinstance(read, StreamDetector):
            raise DamagedFileError("The state of a key is no detector.")
        return read

    def keep(self, detector: StreamDetector) -> bytes:
        """Give the bytes of a detector, which must not be changed any more."""
        content = to_bytes(detector)
        same = self._kept.pop(digest_of(content), None)
        self._kept[digest_of(content)] = detector
        self._n_bytes += detector.n_bytes - (0 if same is None else same.n_bytes)
        while self._n_bytes > self._max_bytes:
            self._n_bytes -= self._kept.popitem(last=False)[1].n_bytes
        return content
