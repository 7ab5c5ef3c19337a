"""What the service allows and how often it does what; one place for all of it."""

from typing import NamedTuple

KIB, MIB = 2**10, 2**20
PER_BYTE_OF_POINTS, PER_BYTE_OF_MODELS = 8, 3  # bytes of memory while a body is read, checked and done


class Limits(NamedTuple):
    """Bounds that keep one client from taking all there is."""

    body_bytes: int = 32 * MIB  # of points
    model_bytes: int = 256 * MIB
    configuration_bytes: int = MIB
    points_per_request: int = 100_000
    explained_points: int = 1_000  # per request
    explained_values: int = 100_000
    name_length: int = 64
    feature_length: int = 256
    features: int = 1_000
    detectors: int = 100
    window: int = 100_000
    trees: int = 1_000
    detector_bytes: int = 900 * MIB  # of which SQLite takes a gigabyte at once, at most
    total_bytes: int = 4096 * MIB  # of all detectors
    waiting_points: int = 100_000  # in the queue of a detector
    waiting_requests: int = 1_000
    waiting_bytes: int = 512 * MIB
    request_id_length: int = 128
    memory_bytes: int = 1024 * MIB  # of bodies, large answers and copies of detectors, together
    parsed_at_once: int = 1  # large bodies: parsing holds Python's lock for most of its time
    copies_at_once: int = 2  # of detectors, for questions that need a copy of their own
    large_answers_at_once: int = 2  # histories, lists and explanations: writing JSON holds Python's lock as well
    waiting_turns: int = 100  # requests that wait to parse, to copy or for a large answer


class Bounds(NamedTuple):
    """Bounds of connections, which hold before anybody has shown a token."""

    connections: int = 1_000
    backlog: int = 128  # connections that the system keeps until they are accepted, and that are accepted together
    url_bytes: int = 16 * KIB
    head_bytes: int = 32 * KIB  # of the request line and all headers
    headers: int = 100
    chunks: int = 10_000  # of a chunked body, and one more for each so many bytes:
    chunk_bytes: int = 64
    pipelined: int = 8  # requests that wait for the answer to one before them on the same connection
    first_seconds: float = 15.0  # until the first request of a connection begins
    idle_seconds: float = 60.0  # until the next one begins
    head_seconds: float = 10.0  # from the first byte of a head to its last
    body_seconds: float = 30.0  # without a byte of a body
    body_rate: int = 16 * KIB  # bytes a second, on average, of a body that takes longer than that
    answer_seconds: float = 30.0  # in which no byte of an answer can be handed to the system
    linger_seconds: float = 10.0  # for what still arrives after the last answer, which is discarded
    linger_bytes: int = 256 * MIB
    grace_seconds: int = 10  # from the signal to end until what still runs is cancelled


class Keeping(NamedTuple):
    """How much is kept, and how often a detector is written as a whole."""

    points_between_snapshots: int = 50_000
    bytes_between_snapshots: int = 64 * MIB
    answers: int = 10_000  # to requests with an id, for each detector
    answer_bytes: int = 64 * MIB
    history: int = 2_000  # rows for the page, in memory
    history_values: int = 200_000  # in them
    seconds_a_copy_lasts: float = 0.5  # for those who only ask, while others are learned
    seconds_to_end: float = 20.0  # for what waits when the service ends; what is left is done after the next start
