"""The ceiling on memory: keys leave and come back unchanged at any moment; without a store they are dropped."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imondrian import InvalidInputError
from tests.fleet.fleets import KEYS, assert_same, cut, new_fleet, orders, process_in_parts, rows_with_anomalies

N_ROWS = 500
X = rows_with_anomalies(N_ROWS)
BYTES = new_fleet().bytes_per_key


def with_ceiling(n_keys, store=None, **settings):
    return new_fleet(max_bytes=n_keys * BYTES + 5, store=store, threshold=0.1, rules={"gap": 3}, **settings)


@pytest.mark.parametrize("order", ["in turn", "one hot key", "random", "one after the other"])
@pytest.mark.parametrize("n_keys", [1, 2, 3])
def test_keys_that_leave_memory_come_back_unchanged(tmp_path, order, n_keys):
    keys, free = orders(N_ROWS)[order], new_fleet(threshold=0.1, rules={"gap": 3})
    expected, events = process_in_parts(free, keys, X, cut(N_ROWS))
    with with_ceiling(n_keys, tmp_path / "fleet.db") as fleet:
        results, seen = process_in_parts(fleet, keys, X, cut(N_ROWS, seed=1))
        assert_same(results, expected)
        assert fleet.n_bytes <= n_keys * BYTES + 5
        assert seen == events
        assert fleet.incidents == free.incidents
        assert fleet.keys() == free.keys()
        assert all(key in fleet for key in free)
        assert fleet.n_dropped == 0
        for key in free:
            assert_same(fleet.detector(key).process_many(X[:30]), free.detector(key).process_many(X[:30]))


def test_many_keys_move_at_once(tmp_path):
    """150 keys leave and 150 come back for one block, in parts of 64."""
    keys = np.tile(np.arange(400), 3)
    rows, free = rows_with_anomalies(1200), new_fleet()
    with new_fleet(max_bytes=250 * BYTES, store=tmp_path / "fleet.db") as fleet:
        assert_same(fleet.process_many(keys, rows), free.process_many(keys, rows))
        assert len(fleet) == 400
        assert fleet.n_bytes == 250 * BYTES


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), max_keys=st.integers(1, 4), n_keys=st.integers(1, 7))
def test_dropped_keys_start_again_as_new_ones_and_do_not_depend_on_calls(seed, max_keys, n_keys):
    """A list of the keys in memory, the latest last, predicts which keys are dropped."""
    rng = np.random.default_rng(seed)
    keys = [KEYS[i] for i in rng.integers(0, n_keys, 80)]
    fleet, other = with_ceiling(max_keys), with_ceiling(max_keys)
    results, events = process_in_parts(fleet, keys, X[:80], cut(80, seed))
    singles, used, n_dropped, indices = {}, [], 0, []
    for key in keys:
        if key in used:
            used.remove(key)
        elif len(used) == max_keys:
            singles.pop(used.pop(0))
            n_dropped += 1
        used.append(key)
        indices.append(singles.setdefault(key, 0))
        singles[key] += 1
    assert fleet.n_dropped == n_dropped
    assert set(fleet.keys()) == set(used)
    assert results[3].tolist() == indices
    assert_same(other.process_many(keys, X[:80]), results)
    assert other.n_dropped == n_dropped
    assert other.incidents == fleet.incidents
    assert list(other.events) == events


def test_a_forgotten_key_starts_again(tmp_path):
    keys = orders(N_ROWS)["random"]
    with with_ceiling(3, tmp_path / "fleet.db") as fleet:
        first = fleet.process_many(keys, X)
        fleet.save()
        for key in list(fleet.keys()):
            fleet.forget(key)
            assert key not in fleet
            with pytest.raises(InvalidInputError, match="There is no key"):
                fleet.forget(key)
            with pytest.raises(InvalidInputError, match="There is no key"):
                fleet.detector(key)
        assert (len(fleet), fleet.incidents, fleet.n_rows) == (0, (), N_ROWS)
        assert_same(fleet.process_many(keys, X), first)
        fleet.forget(3)
        fleet.process(3, X[0])
        fleet.forget("3")
        fleet.save()
        assert fleet.detector(3).n_seen == 1
    with type(fleet).load(tmp_path / "fleet.db") as loaded:
        assert set(loaded.keys()) == set(keys) - {"3"}
        assert loaded.detector(3).n_seen == 1
        assert all(found.key not in (3, "3") for found in loaded.incidents)
