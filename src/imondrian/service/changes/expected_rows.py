"""What was expected of the rows of a series when they arrived, for the page and for explanations.

These expected values are not part of the detector, and change no score. They are computed from the same rows as the
scores, in the same steps, so a replay of the journal gives the same values.
"""

from typing import Any, NamedTuple

import numpy as np

from imondrian.engine.jit import Array
from imondrian.engine.series_views import N_VIEWS
from imondrian.stream.detector import StreamDetector
from imondrian.stream.series_views import Spread

N_ROWS_PER_SPREAD = 128  # the spread is computed again after this many rows


class ExpectedRow(NamedTuple):
    """What was expected of a row."""

    usual: Array  # of shape (N_VIEWS, n_features), one row per view of the series; NaN if not known
    low: Array  # of shape (n_features,): 90 % of ordinary values are between `low` and `high`; NaN if not known
    high: Array

    @classmethod
    def from_bytes(cls, content: bytes) -> "ExpectedRow":
        """Decode the bytes that `expected_rows` returned for a row."""
        parts = np.frombuffer(bytearray(content), "<f8").reshape(N_VIEWS + 2, -1)
        return cls(parts[:N_VIEWS], parts[N_VIEWS], parts[N_VIEWS + 1])


def n_expected_values(n_features: int) -> int:
    """Return how many numbers `expected_rows` stores for a row."""
    return (N_VIEWS + 2) * n_features


def n_rows_at_once(detector: StreamDetector) -> int:
    """Return how many of the next rows can be processed together.

    Rows processed together have the same spread, and their usual values depend only on the values of earlier rows. If
    anomalies are not learned, return 1, because usual values then also depend on whether earlier rows were anomalies.
    """
    learns_anomalies = detector.parameters["learn_anomalies"]
    return N_ROWS_PER_SPREAD - detector.n_seen % N_ROWS_PER_SPREAD if learns_anomalies else 1


def updated_spread(spread: Spread | None, detector: StreamDetector) -> Spread | None:
    """Return the spread for the next rows, or None if it is not known yet."""
    is_due = detector.n_seen % N_ROWS_PER_SPREAD == 0 and detector.forest.n_points > 0
    return detector.spread if is_due else spread


def expected_rows(usual: Array, spread: Spread | None) -> list[bytes]:
    """Return the expected values of each row, as bytes, from its usual values (`StreamDetector.usual_values`)."""
    n_rows, _, n_features = usual.shape
    low, high = np.full((2, n_rows, n_features), np.nan) if spread is None else spread.range_around(usual)
    table = np.hstack([usual.reshape(n_rows, N_VIEWS * n_features), low, high]).astype("<f8")
    return [row.tobytes() for row in table]


def spread_as_json(spread: Spread | None) -> dict[str, Any] | None:
    """Return a spread in types that JSON supports."""
    return None if spread is None else {name: values.tolist() for name, values in spread._asdict().items()}


def spread_from_json(value: dict[str, Any] | None) -> Spread | None:
    """Return the spread that `spread_as_json` wrote."""
    return None if value is None else Spread(np.array(value["low"]), np.array(value["high"]))
