"""Interruptions (Ctrl+C) at any line: the fleet has processed the first rows of the call, and goes on."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

import imondrian.fleet.fleet
from imondrian import Fleet
from tests import interruptions
from tests.fleet.fleets import KEYS, assert_same, new_fleet, rows_with_anomalies

FILES = tuple(f"fleet/{path.name}" for path in Path(imondrian.fleet.fleet.__file__).parent.glob("*.py"))
N_BEFORE, N_ROWS, N_KEYS = 90, 40, 6
X = rows_with_anomalies(400)
ORDER = np.random.default_rng(3).integers(0, N_KEYS, 400)
ROW_KEYS = [KEYS[i] for i in ORDER]
BYTES = new_fleet().bytes_per_key
SETTINGS = {"threshold": 0.2, "rules": {"gap": 2}}
CEILING = {"max_bytes": 4 * BYTES}
interrupted = partial(interruptions.interrupted, files=FILES)


class Expected:
    """Fleets that were never interrupted, by the number of rows that they have processed."""

    def __init__(self, **settings):
        self.settings = {**SETTINGS, **settings}

    def fleet(self, n_rows):
        fleet = new_fleet(**self.settings)
        fleet.process_many(ROW_KEYS[:N_BEFORE], X[:N_BEFORE])
        fleet.process_many(ROW_KEYS[N_BEFORE:n_rows], X[N_BEFORE:n_rows])
        return fleet

    def check(self, fleet):
        """Compare with the fleet that processed exactly the same rows, now and for the following rows."""
        events, n_rows = fleet.events, fleet.n_rows  # events first: to read them completes the interrupted block
        reference = self.fleet(n_rows)
        assert N_BEFORE <= n_rows <= N_BEFORE + N_ROWS
        assert fleet.incidents == reference.incidents
        assert fleet.keys() == reference.keys()
        assert fleet.n_dropped == reference.n_dropped
        assert fleet.n_bytes == reference.n_bytes
        if n_rows > N_BEFORE:
            assert events == reference.events
        rows = slice(n_rows, n_rows + 60)
        assert_same(fleet.process_many(ROW_KEYS[rows], X[rows]), reference.process_many(ROW_KEYS[rows], X[rows]))
        assert fleet.incidents == reference.incidents
        return n_rows


@pytest.mark.parametrize("settings", [{}, CEILING, {"on_error": "skip"}, {"max_bytes": BYTES}], ids=str)
def test_an_interrupted_call_has_processed_its_first_rows(settings):
    expected = Expected(**settings)
    reached = set()
    for fleet in interrupted(
        lambda: expected.fleet(N_BEFORE),
        lambda fleet: fleet.process_many(ROW_KEYS[N_BEFORE : N_BEFORE + N_ROWS], X[N_BEFORE : N_BEFORE + N_ROWS]),
        n_lines=25,
    ):
        reached.add(expected.check(fleet))
    assert len(reached) > 1


def test_keys_of_an_interrupted_call_move_between_memory_and_store_without_loss(tmp_path):
    expected, reached, n = Expected(), set(), iter(range(1000))

    def new():
        fleet = new_fleet(**SETTINGS, max_bytes=2 * BYTES, store=tmp_path / f"{next(n)}.db")
        fleet.process_many(ROW_KEYS[:50], X[:50])
        fleet.save()
        fleet.process_many(ROW_KEYS[50:N_BEFORE], X[50:N_BEFORE])
        return fleet

    def call(fleet):
        fleet.process_many(ROW_KEYS[N_BEFORE : N_BEFORE + N_ROWS], X[N_BEFORE : N_BEFORE + N_ROWS])

    for fleet in interrupted(new, call, n_lines=20):
        n_rows, incidents = fleet.n_rows, fleet.incidents
        reference = expected.fleet(n_rows)
        assert (incidents, fleet.keys()) == (reference.incidents, reference.keys())
        assert fleet.n_bytes <= 2 * BYTES
        rows = slice(n_rows, n_rows + 60)
        assert_same(fleet.process_many(ROW_KEYS[rows], X[rows]), reference.process_many(ROW_KEYS[rows], X[rows]))
        reached.add(n_rows)
    assert len(reached) > 2


def test_an_interrupted_first_move_to_the_store_never_brings_an_old_state_back(tmp_path):
    """The key that was being moved stays in memory, learns, and is saved; later it leaves memory."""
    n, rows = iter(range(1000)), rows_with_anomalies(130)

    def new():
        fleet = new_fleet(**SETTINGS, max_bytes=2 * BYTES, store=tmp_path / f"{next(n)}.db")
        fleet.process_many(["A"] * 40 + ["B"] * 40, np.vstack([rows[:40], rows[:40]]))
        return fleet

    reference = new_fleet(**SETTINGS)
    reference.process_many(["A"] * 80, rows[:80])
    expected = reference.process_many(["A"] * 50, rows[80:])
    move = partial(interruptions.interrupted, files=("fleet/key_store.py",), n_lines=1000)
    for fleet in move(new, lambda fleet: fleet.process_many(["C"] * 10, rows[:10])):
        fleet.process_many(["A"] * 40, rows[40:80])
        fleet.save()
        fleet.process_many(["B", "C", "D", "E"] * 10, np.repeat(rows[:10], 4, axis=0))
        assert fleet.n_rows_of("A") == 80
        fleet.save()
        fleet.close()
        with Fleet.load(fleet._state.table.store.path) as loaded:
            assert_same(loaded.process_many(["A"] * 50, rows[80:]), expected)


def test_an_interrupted_row_is_processed_or_not_at_all():
    expected = Expected()
    for fleet in interrupted(
        lambda: expected.fleet(N_BEFORE), lambda fleet: fleet.process(ROW_KEYS[N_BEFORE], X[N_BEFORE]), n_lines=40
    ):
        assert expected.check(fleet) in (N_BEFORE, N_BEFORE + 1)


def test_a_key_that_is_forgotten_while_interrupted_is_there_or_gone(tmp_path):
    n, outcomes = iter(range(1000)), set()

    def new():
        fleet = new_fleet(**SETTINGS, max_bytes=3 * BYTES, store=tmp_path / f"{next(n)}.db")
        fleet.process_many(ROW_KEYS[:N_BEFORE], X[:N_BEFORE])
        return fleet

    for fleet in interrupted(new, lambda fleet: fleet.forget(KEYS[1]), n_lines=25):
        is_there = KEYS[1] in fleet
        outcomes.add(is_there)
        assert any(found.key == KEYS[1] for found in fleet.incidents) == is_there
        reference = Expected().fleet(N_BEFORE)
        if not is_there:
            reference.forget(KEYS[1])
        rows = slice(N_BEFORE, N_BEFORE + 60)
        assert_same(fleet.process_many(ROW_KEYS[rows], X[rows]), reference.process_many(ROW_KEYS[rows], X[rows]))
        assert fleet.keys() == reference.keys()
    assert outcomes == {True, False}


@pytest.mark.parametrize("rows", [X, np.copysign(0.0, X)], ids=["packed", "in full"])
@pytest.mark.parametrize("settings", [{}, CEILING], ids=str)
def test_a_key_that_was_being_unpacked_is_not_there(settings, rows):
    """A new key, which gets its entry, is not affected."""
    source, expected = new_fleet(**SETTINGS), Expected(**settings)
    source.process_many(["other"] * 90, rows[:90])
    state, n_compared = source.pack_key("other"), 0

    def new():
        fleet = expected.fleet(N_BEFORE)
        fleet.confirm_key_changes()
        return fleet

    for fleet in interrupted(new, lambda fleet: fleet.unpack_key("other", state), n_lines=40):
        reference = expected.fleet(N_BEFORE)
        assert "other" not in fleet
        assert fleet.key_changes().changed == []
        if fleet.n_dropped == reference.n_dropped:  # otherwise, another key was dropped to make room
            keys = ["first", *ROW_KEYS[:60], "other"]
            assert_same(fleet.process_many(keys, X[:62]), reference.process_many(keys, X[:62]))
            assert fleet.keys() == reference.keys()
            n_compared += 1
    assert n_compared > 20


def test_all_keys_are_forgotten_even_if_interrupted(tmp_path):
    n, outcomes = iter(range(1000)), set()

    def new():
        fleet = new_fleet(**SETTINGS, max_bytes=3 * BYTES, store=tmp_path / f"{next(n)}.db")
        fleet.process_many(ROW_KEYS[:N_BEFORE], X[:N_BEFORE])
        fleet.confirm_key_changes()
        return fleet

    for fleet in interrupted(new, lambda fleet: fleet.forget_all(), n_lines=25):
        keys, changes = fleet.keys(), fleet.key_changes()
        outcomes.add(len(keys))
        assert len(changes.removed) == len(set(ROW_KEYS[:N_BEFORE])) - len(keys)
        reference = new_fleet(**SETTINGS) if not keys else Expected().fleet(N_BEFORE)
        assert_same(fleet.process_many(ROW_KEYS[:60], X[:60]), reference.process_many(ROW_KEYS[:60], X[:60]))
    assert outcomes == {0, N_KEYS}


def test_a_key_that_is_read_while_interrupted_leaves_no_trace_in_its_entry(tmp_path):
    """The entry into which it was being copied is used for a new key."""
    n = iter(range(1000))

    def new():
        fleet = new_fleet(**SETTINGS, store=tmp_path / f"{next(n)}.db")
        fleet.process_many(["other"] * 90, X[:90])
        fleet.save()
        fleet.close()
        return Fleet.load(fleet._state.table.store.path)

    reference = new_fleet(**SETTINGS)
    expected = reference.process_many(["new"] * 20, X[:20])
    for fleet in interrupted(new, lambda fleet: fleet.process("other", X[0]), n_lines=60):
        assert_same(fleet.process_many(["new"] * 20, X[:20]), expected)


def test_an_interrupted_save_leaves_the_old_or_the_new_one(tmp_path):
    n, reached = iter(range(1000)), set()

    def new():
        fleet = new_fleet(**SETTINGS, max_bytes=3 * BYTES, store=tmp_path / f"{next(n)}.db")
        fleet.process_many(ROW_KEYS[:50], X[:50])
        fleet.save()
        fleet.process_many(ROW_KEYS[50:N_BEFORE], X[50:N_BEFORE])
        return fleet

    for fleet in interrupted(new, lambda fleet: fleet.save(), n_lines=40):
        path = fleet._state.table.store.path
        reference = Expected().fleet(N_BEFORE)
        rows = slice(N_BEFORE, N_BEFORE + 60)
        assert_same(fleet.process_many(ROW_KEYS[rows], X[rows]), reference.process_many(ROW_KEYS[rows], X[rows]))
        fleet.close()
        with Fleet.load(path) as loaded:
            reached.add(loaded.n_rows)
            reference = new_fleet(**SETTINGS)
            reference.process_many(ROW_KEYS[: loaded.n_rows], X[: loaded.n_rows])
            assert (loaded.incidents, loaded.keys()) == (reference.incidents, reference.keys())
            assert_same(loaded.process_many(ROW_KEYS, X), reference.process_many(ROW_KEYS, X))
    assert reached <= {50, N_BEFORE}
    assert len(reached) > 1


def test_the_common_forest_learns_each_row_once_even_if_interrupted(monkeypatch):
    """With short epochs, one call learns several times."""
    monkeypatch.setattr("imondrian.fleet.common_forest.EPOCH", 32)
    monkeypatch.setattr("imondrian.fleet.common_forest._SAMPLE_LIMIT", np.uint64(2**63))
    monkeypatch.setattr("imondrian.fleet.common_forest._WINDOW", 64)
    keys = [int(key) for key in np.random.default_rng(0).integers(0, 6, 300)] + list(range(100, 105)) * 40
    rows = rows_with_anomalies(500)
    settings = {**SETTINGS, "borrow": True, "warm_up": 24}

    def new(n_rows=300):
        fleet = new_fleet(**settings)
        fleet.process_many(keys[:n_rows], rows[:n_rows])
        return fleet

    n_borrowed = 0
    for fleet in interrupted(new, lambda fleet: fleet.process_many(keys[300:450], rows[300:450]), n_lines=25):
        n_rows = fleet.n_rows
        results, expected = (f.process_many(keys[n_rows:], rows[n_rows:]) for f in (fleet, new(n_rows)))
        assert_same(results, expected)
        n_borrowed += results.is_borrowed.sum()
    assert n_borrowed > 0
