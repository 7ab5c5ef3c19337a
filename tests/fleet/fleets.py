"""Small fleets, hostile keys, and the single detectors that a fleet must equal."""

from collections import defaultdict

import numpy as np

from imondrian import Fleet, StreamDetector

SIZES = {"n_trees": 5, "window": 32, "max_samples": 8}
KEYS = [3, "3", "", "\x00", "a\x00b", "\ud800", "😀", "é", "e\u0301", -3, 2**62, -(2**63) + 1, "x" * 10_000, "i3", "t3"]
FIELDS = ("score", "is_anomaly", "threshold", "index", "surprise", "incident")


def rows_with_anomalies(n_rows, n_features=2, seed=0):
    """Return ordinary rows, among them single anomalies and a run of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    X[rng.integers(0, n_rows, n_rows // 40)] += 9.0
    X[n_rows // 2 : n_rows // 2 + n_rows // 20] -= 7.0
    return X


def orders(n_rows, seed=0):
    """Return orders of keys, by name."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, len(KEYS), n_rows)
    return {
        "in turn": [KEYS[i % len(KEYS)] for i in range(n_rows)],
        "one hot key": [KEYS[0] if rng.random() < 0.8 else KEYS[i] for i in choices],
        "random": [KEYS[i] for i in choices],
        "one after the other": sorted((KEYS[i] for i in choices), key=repr),
        "each once": [f"key {i}" if i % 2 else i for i in range(n_rows)],
    }


def new_fleet(n_features=2, **settings):
    """Return a small fleet that does not borrow."""
    return Fleet(n_features, **{**SIZES, "borrow": False, "seed": 5, **settings})


def detector_of(fleet, key, settings=None):
    """Return the single detector that the detector of a key must equal."""
    own = {"borrow", "max_bytes", "store", "n_jobs"}
    settings = {name: value for name, value in {**SIZES, **(settings or {})}.items() if name not in own}
    return StreamDetector(
        fleet.parameters["n_features"], **{**settings, "seed": fleet.seed_of(key), "missing": "raise"}
    )


def cut(n_rows, seed=0):
    """Return slices that divide rows at random; some are empty, some have one row."""
    rng = np.random.default_rng(seed)
    ends = np.sort(np.concatenate([rng.integers(0, n_rows + 1, 8), [0, 1, n_rows]]))
    return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]


def process_in_parts(fleet, keys, X, parts):
    """Process the parts; return the results as one, and all events."""
    results, events = [], []
    for part in parts:
        results.append(fleet.process_many(keys[part], X[part]))
        events += fleet.events
    return [np.concatenate(columns) for columns in zip(*results, strict=True)], events


def positions_by_key(keys):
    """Return the positions of each key."""
    positions = defaultdict(list)
    for position, key in enumerate(keys):
        positions[key].append(position)
    return positions


def assert_same(results, others):
    """Check that all columns of results are equal, bit for bit."""
    for ours, theirs in zip(results, others, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
