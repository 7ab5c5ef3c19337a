"""What the service allows and how often it does what; one place for all of it."""

from typing import NamedTuple

MIB = 2**20


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


class Keeping(NamedTuple):
    """How much is kept, and how often a detector is written as a whole."""

    points_between_snapshots: int = 50_000
    bytes_between_snapshots: int = 64 * MIB
    answers: int = 10_000  # to requests with an id, for each detector
    answer_bytes: int = 64 * MIB
    history: int = 2_000  # rows for the page, in memory
    history_values: int = 200_000  # in them
    seconds_a_copy_lasts: float = 0.5  # for those who only ask, while others are learned
