"""Cache of detectors between micro-batches: Spark's state store holds their bytes, and each worker caches objects."""

from collections import OrderedDict

from imondrian.base.errors import DamagedFileError
from imondrian.base.sealed_zip import digest_of
from imondrian.model_files import from_bytes, to_bytes
from imondrian.stream.detector import StreamDetector

_MAX_BYTES = 2**29  # of detectors in the cache of a worker


class DetectorCache:
    """The detectors that a worker wrote last, so that they need not be read again.

    The valid state is always the one in the state store. A detector is cached under the digest of its bytes, so that a
    detector of another batch, or of a failed attempt, is never used instead.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._cached: OrderedDict[bytes, StreamDetector] = OrderedDict()
        self._n_bytes = 0

    def pop(self, content: bytes) -> StreamDetector:
        """Remove the detector with these bytes from the cache, or load it, and return it; the caller may change it."""
        detector = self._cached.pop(digest_of(content), None)
        if detector is not None:
            self._n_bytes -= detector.n_bytes
            return detector
        loaded = from_bytes(content, "The state of a key")
        if not isinstance(loaded, StreamDetector):
            raise DamagedFileError(f"The state of a key must be a StreamDetector, but is {type(loaded).__name__}.")
        return loaded

    def put(self, detector: StreamDetector) -> bytes:
        """Cache a detector and return its bytes. The detector must not be changed afterwards."""
        content = to_bytes(detector)
        same = self._cached.pop(digest_of(content), None)
        self._cached[digest_of(content)] = detector
        self._n_bytes += detector.n_bytes - (0 if same is None else same.n_bytes)
        while self._n_bytes > self._max_bytes:
            self._n_bytes -= self._cached.popitem(last=False)[1].n_bytes
        return content
