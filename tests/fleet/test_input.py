"""What a fleet refuses, and what it says; calls from several threads."""

import copy
import pickle
import threading

import numpy as np
import pytest

from imondrian import Fleet, InvalidInputError
from tests.fleet.fleets import KEYS, SIZES, assert_same, new_fleet, rows_with_anomalies
from tests.test_locking import in_threads

X = rows_with_anomalies(600)


@pytest.mark.parametrize("key", [True, 1.5, b"bytes", None, np.bool_(True), 2**63, -(2**63), ["a"], np.float64(1.0)])
def test_keys_are_text_or_integers(key):
    fleet = new_fleet()
    for call in (
        lambda: fleet.process(key, X[0]),
        lambda: fleet.process_many(["a", key], X[:2]),
        lambda: fleet.process_many([3, key], X[:2]),
        lambda: fleet.forget(key),
        lambda: fleet.detector(key),
        lambda: fleet.seed_of(key),
        lambda: key in fleet,
    ):
        with pytest.raises(InvalidInputError, match="A key must be text or an integer") as found:
            call()
        assert repr(key)[:50] in str(found.value)
    assert (len(fleet), fleet.n_rows) == (0, 0)


def test_keys_of_arrays_and_iterables_are_those_of_python():
    fleet = new_fleet()
    fleet.process_many(np.array([1, 2, 1], np.uint8), X[:3])
    fleet.process_many(np.array(["a", "b"]), X[:2])
    fleet.process_many(iter([np.int32(1), np.str_("a")]), X[:2])
    fleet.process_many({"a": 0, 2: 0}, X[:2])
    assert fleet.keys() == [1, 2, "a", "b"]
    assert {type(key) for key in fleet} == {int, str}
    assert fleet.detector(1).n_seen == fleet.detector("a").n_seen == 3


@pytest.mark.parametrize(
    ("keys", "rows", "message"),
    [
        (["a"], X[:2], "there are 1 keys and 2 rows"),
        (["a", "b"], X[:1], "there are 2 keys and 1 rows"),
        ("ab", X[:2], "keys must be a sequence of keys, but is 'ab'"),
        (5, X[:2], "keys must be a sequence of keys, but is 5"),
        (b"ab", X[:2], "keys must be a sequence of keys, but is b'ab'"),
        (["a"], 5.0, "there are 1 keys and 5.0 rows"),
        (["a"], [[1.0]], "1 features"),
        (["a"], [[1.0, 2.0, 3.0]], "3 features"),
        (["a"], [["x", 2.0]], "'x'"),
        (["a", "b"], [[1.0, 2.0], [np.nan, 1.0]], "nan|NaN"),
        (["a"], [[np.inf, 1.0]], "inf"),
        (["a"], [{"a": 1.0}], "1 features|features"),
    ],
)
def test_unusable_rows_are_refused_and_nothing_is_processed(keys, rows, message):
    fleet = new_fleet()
    with pytest.raises(InvalidInputError, match=message):
        fleet.process_many(keys, rows)
    assert (len(fleet), fleet.n_rows, fleet.events) == (0, 0, ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "series"}, "no preset 'series'"),
        ({"preset": "typo"}, "typo"),
        ({"kind": "typo"}, "typo"),
        ({"threshold": 0.7}, "0.7"),
        ({"scale": "typo"}, "typo"),
        ({"scale": [1.0]}, "scale|weights"),
        ({"n_trees": 0}, "n_trees.* 0"),
        ({"window": 0}, "window.* 0"),
        ({"max_samples": 0}, "max_samples.* 0"),
        ({"seed": -1}, "seed.*-1"),
        ({"borrow": 1}, "borrow must be True or False, but is 1"),
        ({"on_error": "typo"}, "typo"),
        ({"max_bytes": 1000}, "max_bytes.* 1000"),
        ({"max_bytes": new_fleet().bytes_per_key - 1}, "max_bytes"),
        ({"max_bytes": 1.5e9}, "max_bytes"),
        ({"rules": {"typo": 1}}, "typo"),
        ({"n_jobs": 1.5}, "n_jobs"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        new_fleet(**settings)


def test_wrong_changes_are_refused():
    fleet = new_fleet(rules={"side": {"cpu": "high"}})
    with pytest.raises(InvalidInputError, match="'cpu'"):
        fleet.process("a", X[0])
    fleet.process("a", {"cpu": 1.0, "memory": 2.0})
    for name, value in (("threshold", "typo"), ("rules", {"side": {"disk": "high"}})):
        before = getattr(fleet, name)
        with pytest.raises(InvalidInputError):
            setattr(fleet, name, value)
        assert getattr(fleet, name) == before


def test_a_fleet_cannot_be_pickled_or_copied():
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"use save and Fleet\.load"):
            call(new_fleet())


def test_calls_from_four_threads_lose_nothing(tmp_path):
    """Every thread has keys of its own; their results are those of a fleet of their own."""
    settings = {"store": tmp_path / "fleet.db", "max_bytes": 5 * new_fleet().bytes_per_key, "threshold": 0.1}
    results, done = {}, threading.Event()
    with new_fleet(**settings) as fleet:

        def process(name):
            keys = [f"{name} {i % 4}" for i in range(300)]
            parts = [fleet.process_many(keys[i : i + 30], X[i : i + 30]) for i in range(0, 300, 30)]
            parts += [fleet.process_many([f"{name} {i % 4}"], X[i : i + 1]) for i in range(20)]
            results[name] = [np.concatenate(columns) for columns in zip(*parts, strict=True)]

        def read():
            while len(results) < 3 and not done.wait(0.001):
                assert fleet.n_bytes <= settings["max_bytes"]
                for key in fleet.keys()[:2]:
                    fleet.detector(key)
                    assert key in fleet
                assert len(fleet.incidents) >= 0
                fleet.save()

        try:
            in_threads(*(lambda name=name: process(name) for name in "abc"), read)
        finally:
            done.set()
        assert (fleet.n_rows, len(fleet)) == (960, 12)
        for name in "abc":
            free, keys = new_fleet(threshold=0.1), [f"{name} {i % 4}" for i in [*range(300), *range(20)]]
            assert_same(free.process_many(keys, np.vstack([X[:300], X[:20]])), results[name])


def test_repr_shows_the_settings():
    assert f"window={SIZES['window']}" in repr(new_fleet())
    assert repr(Fleet(3)).startswith("Fleet(n_features=3")
    assert len(KEYS) == len(set(KEYS))
