"""Extreme values, arrays that change, and hostile stores: a fleet refuses them or goes on, and never stays unusable."""

import sqlite3
import threading
import tracemalloc
from contextlib import closing, suppress

import numpy as np
import pytest

from imondrian import DamagedFileError, Fleet, InvalidInputError
from imondrian.base.errors import ImondrianError
from imondrian.fleet.common_forest import _is_sampled, as_normal


@pytest.mark.filterwarnings("error")
def test_a_huge_deviation_does_not_block_the_fleet(tmp_path):
    """Its square overflowed, and every later call failed with the same error."""
    fleet = Fleet(1, window=64, warm_up=32)
    X = np.random.default_rng(0).normal(size=(4096, 1)) * 1e-10
    X[next(j for j in np.flatnonzero(_is_sampled(0, 4096)) if j > 3000)] = 1e150
    results = fleet.process_many([f"k{i % 4}" for i in range(4096)], X)
    fleet.process_many(["new"] * 20, X[:20])
    new = fleet.process("new", [1e153])
    assert np.isfinite(results.score).all()
    assert new.score > results.score.mean()
    fleet.save(tmp_path / "fleet.db")
    assert Fleet.load(tmp_path / "fleet.db").n_rows == fleet.n_rows == 4117


def test_deviations_in_the_ordinary_range_are_not_limited():
    deviations, n_points = np.array([[1e50], [-3.0]]), np.array([20, 20])
    assert np.isfinite(as_normal(deviations, n_points, 64)).all()
    assert as_normal(deviations, n_points, 64)[0, 0] < as_normal(deviations * 10, n_points, 64)[0, 0]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_values_that_another_thread_writes_are_never_learned_unchecked(on_error):
    fleet, X, is_over = Fleet(2, window=32, n_trees=4, on_error=on_error), np.full((64, 2), 0.5), threading.Event()

    def write():
        while not is_over.is_set():
            X[::7, 1] = np.inf
            X[::7, 1] = 0.5

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            with suppress(ImondrianError):
                fleet.process_many([f"k{i % 4}" for i in range(64)], X)
    finally:
        is_over.set()
        writer.join()
    X[:] = 0.5
    fleet.process_many([f"k{i % 4}" for i in range(64)], X)
    assert all(np.isfinite(fleet.detector(key).forest.points()).all() for key in fleet)


def saved(tmp_path):
    path = tmp_path / "fleet.db"
    with Fleet(1, store=path) as fleet:
        fleet.process_many(["a"] * 40, np.random.default_rng(0).normal(size=(40, 1)))
        fleet.save()
    return path


def assert_is_refused_cheaply(path, message):
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFileError, match=message):
            Fleet.load(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def change_header(path, change):
    with closing(sqlite3.connect(path)) as database:
        (header,) = database.execute("SELECT value FROM facts WHERE name = 'header'").fetchone()
        changed = change(header.decode()).encode()
        assert changed != header
        database.execute("UPDATE facts SET value = ? WHERE name = 'header'", (changed,))
        database.commit()


@pytest.mark.parametrize("n_features", [300_000, 2**31 - 2])
def test_a_small_store_that_describes_many_features_costs_little(tmp_path, n_features):
    path = saved(tmp_path)
    change_header(path, lambda text: text.replace('"n_features": 1,', f'"n_features": {n_features},'))
    assert_is_refused_cheaply(path, "has 1 features, but the fleet has")


def test_a_header_with_millions_of_lists_costs_little(tmp_path):
    path = saved(tmp_path)
    change_header(path, lambda text: text.replace('"watch": {}', f'"watch": {{"a": [{"[]," * 10**6}[]]}}'))
    assert_is_refused_cheaply(path, "at most 131072 lists, objects or keys")


def test_a_header_that_could_not_be_read_again_is_not_written(tmp_path):
    with Fleet(1, store=tmp_path / "fleet.db") as fleet:
        fleet.extra = {"positions": [[] for _ in range(2**17)]}
        with pytest.raises(InvalidInputError, match="The header of a fleet can have at most 131072 lists"):
            fleet.save()


def test_damaged_text_in_a_store_is_a_damaged_file(tmp_path):
    path = saved(tmp_path)
    content = path.read_bytes()
    position = content.index(b"CREATE TABLE")
    n_damaged = 0
    for offset in range(0, 60, 3):
        path.write_bytes(content[: position + offset] + b"\x80" + content[position + offset + 1 :])
        try:
            Fleet.load(path).close()
        except ImondrianError:
            n_damaged += 1
    assert n_damaged == 20
