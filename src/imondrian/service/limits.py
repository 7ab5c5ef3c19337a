"""Limits of the service: of requests and detectors, of connections, and of what is stored."""

from typing import NamedTuple

KIB, MIB = 2**10, 2**20
N_EVENTS_KEPT = 10_000  # openings and closings of incidents; the oldest are deleted, even if not delivered
PER_BYTE_OF_POINTS, PER_BYTE_OF_MODELS = 8, 3  # memory reserved per byte of a body while its request is processed
KEY_BYTES = 1024  # memory counted for the name and the latest figures of each key, even of keys that are on disk
PER_SCORED_ROW = 640  # bytes of memory reserved for the result of each learned point, as objects and as JSON
PER_EXPLAINED_VALUE = 2048  # bytes of memory reserved for the explanation of each value, as an object
# file descriptors of a detector with a key: its file (opened twice), its second file, for keys that leave memory, and a
# journal of SQLite
DESCRIPTORS_PER_KEY_FILE = 4
SMALL_RESPONSE = 64 * KIB  # up to this size, no memory is reserved for a response
REPLY_SHARE = (
    8  # the saved replies of all detectors may take 1/8 of `total_bytes` (at least `reply_bytes`), in addition
)
COPIES_OF_POINTS = 3  # how many copies of the points to learn are in memory at the same time


class Limits(NamedTuple):
    """Limits of requests and detectors, so that no client can exhaust the service."""

    body_bytes: int = 32 * MIB  # of a body with points
    model_bytes: int = 256 * MIB
    configuration_bytes: int = MIB
    unused_body_bytes: int = 16 * KIB  # of a body that is ignored; no memory is reserved for it
    points_per_request: int = 100_000
    values_per_request: int = 10**9  # points times trees times values of a point: about half a minute of work at most
    explained_points: int = 1_000  # per request
    explained_values: int = 100_000
    explained_name_bytes: int = 16 * MIB  # of the names of the features of all points explained in a request
    name_length: int = 64
    feature_length: int = 256
    category_length: int = 256
    features: int = 1_000
    detectors: int = 1_000  # each has a thread; usually `total_bytes` is the limit that matters
    keyed_detectors: int = 1_000  # open detectors with a key; fewer if the limit on file descriptors is too low
    keys: int = 200_000  # of a detector
    moved_bytes: int = 16 * 1024 * MIB  # of keys, between memory and disk, while a request is applied
    keys_per_read: int = 1_000  # keys in a request that scores or explains points without learning them
    window: int = 100_000
    trees: int = 1_000
    detector_bytes: int = 900 * MIB  # SQLite stores at most a gigabyte in one value
    total_bytes: int = 4096 * MIB  # of all detectors: `imondrian serve --max-memory`
    waiting_points: int = 100_000  # in the queue of a detector
    waiting_requests: int = 1_000
    waiting_bytes: int = 512 * MIB
    request_id_length: int = 128
    memory_bytes: int = 1024 * MIB  # of bodies, large responses and copies of detectors together
    parsed_at_once: int = 1  # large bodies: parsing holds the GIL most of the time
    copies_at_once: int = 2  # of detectors, for reads that need a private copy
    large_responses_at_once: int = 2  # histories, lists and explanations: writing JSON also holds the GIL
    backup_seconds: float = 60.0  # in which a client must read a backup, plus a second for every `backup_rate` bytes
    backup_rate: int = 256 * KIB
    listeners: int = 100  # connections that wait for events
    incidents: int = 1_000  # in a response
    waiting_for_slot: int = 100  # requests that may wait for each kind of slot


class ConnectionLimits(NamedTuple):
    """Limits of connections, enforced before the token is checked."""

    connections: int = 1_000
    backlog: int = 128  # connections queued by the operating system, which are accepted together
    url_bytes: int = 16 * KIB
    head_bytes: int = 32 * KIB  # of the request line and all headers
    headers: int = 100
    chunks: int = 10_000  # of a chunked body, plus one chunk for every `chunk_bytes` bytes of the body
    chunk_bytes: int = 64
    pipelined: int = 8  # requests queued behind an unanswered one on the same connection
    first_seconds: float = 15.0  # until the first request of a connection begins
    idle_seconds: float = 60.0  # until the next request of a connection begins
    head_seconds: float = 10.0  # from the first byte of a head to its last
    body_seconds: float = 30.0  # without receiving a byte of a body
    body_rate: int = 16 * KIB  # average bytes per second required of a body after its first `body_seconds`
    response_seconds: float = 30.0  # without being able to send a byte of a response
    linger_seconds: float = 10.0  # for discarding input after the last response
    linger_bytes: int = 256 * MIB
    grace_seconds: int = 10  # from the shutdown signal until running requests are cancelled


class Retention(NamedTuple):
    """How much is stored for each detector, how often snapshots are saved, and the times of background work."""

    points_between_snapshots: int = 50_000
    seconds_between_snapshots: float = 10.0  # of applying requests; a replay takes about as long
    bytes_between_snapshots: int = 64 * MIB
    requests_between_snapshots: int = 5_000  # requests that learn no points
    replies: int = 10_000  # to requests with an id
    reply_bytes: int = 64 * MIB
    history: int = 2_000  # rows for the page, in memory
    history_values: int = 200_000  # values in these rows
    history_label_bytes: int = 8 * MIB  # categories and times of these rows
    copy_max_age: float = 0.5  # maximum age, in seconds, of a copy for reads while points are being learned
    silence_check_seconds: float = 1.0  # between two checks for detectors without data
    retry_seconds: float = 1.0  # until a failed notification is sent again; doubled after each failure
    longest_retry_seconds: float = 300.0
    notification_seconds: float = 86_400.0  # of failed attempts, after which a notification is given up
    shutdown_seconds: float = 20.0  # for queued work at shutdown; the rest is replayed at the next start

    def history_rows(self, n_features: int) -> int:
        """Return how many of the latest rows are stored for the page."""
        return min(self.history, max(self.history_values // n_features, 1))
