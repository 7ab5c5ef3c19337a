"""Saving to another file: the store in use is never replaced, and the file is complete at any time."""

import gc
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import imondrian
from imondrian import Fleet
from imondrian.base.errors import ImondrianError, StoreError
from imondrian.fleet import key_store
from imondrian.fleet.key_store import KeyStore
from imondrian.model_files import load_extra, load_model

X = np.random.default_rng(0).normal(size=(20, 1))
SMALL = {"n_trees": 2, "window": 16, "max_samples": 8}


@pytest.mark.parametrize("name", ["real/../real/fleet.db", "link/fleet.db", "link.db"])
def test_another_name_of_the_store_is_the_store(tmp_path, name):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "fleet.db")
    with Fleet(1, store=tmp_path / "real" / "fleet.db", **SMALL) as fleet:
        fleet.process_many(range(10), X[:10])
        imondrian.save(fleet, tmp_path / name)
        fleet.process_many(range(10), X[10:])
        fleet.save()
    with Fleet.load(tmp_path / name) as loaded:
        assert loaded.n_rows == 20
    assert not list(tmp_path.rglob("*-spill"))


def test_a_store_in_use_is_not_replaced(tmp_path):
    path = tmp_path / "fleet.db"
    with Fleet(1, store=path, **SMALL) as fleet:
        fleet.process_many(range(10), X[:10])
        fleet.save()
        with pytest.raises(StoreError, match="another process or fleet is using it"):
            Fleet(1, **SMALL).save(path)
        assert path.with_name("fleet.db-spill").exists()
        fleet.process_many(range(10), X[10:])
        fleet.save()
    with Fleet.load(path) as loaded:
        assert loaded.n_rows == 20
    assert [each.name for each in tmp_path.iterdir()] == ["fleet.db"]


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\x00 and no database"])
def test_any_other_file_is_replaced(tmp_path, content):
    path = tmp_path / "fleet.db"
    path.write_bytes(content)
    path.chmod(0o640)
    path.with_name("fleet.db-journal").write_bytes(b"of a former file")
    fleet = Fleet(1, **SMALL)
    fleet.process_many(range(10), X[:10])
    fleet.save(path)
    assert path.stat().st_mode & 0o777 == 0o640
    with Fleet.load(path) as loaded:
        assert loaded.n_rows == 10


def test_the_file_is_complete_while_several_fleets_are_saved_to_it(tmp_path):
    path, copy = tmp_path / "fleet.db", tmp_path / "copy.db"
    fleets = [Fleet(1, **SMALL) for _ in range(2)]
    for fleet in fleets:
        fleet.process_many(list(range(20)), X)
    fleets[0].save(path)
    threads = [threading.Thread(target=lambda fleet=fleet: [fleet.save(path) for _ in range(20)]) for fleet in fleets]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        shutil.copyfile(path, copy)
        with Fleet.load(copy) as loaded:
            assert len(loaded) == 20
    for thread in threads:
        thread.join()
    assert {each.name for each in tmp_path.iterdir()} == {"fleet.db", "copy.db"}


def test_a_key_of_more_than_a_million_points_is_read_again(tmp_path):
    n_rows = 2**20 + 10
    rows = np.arange(n_rows, dtype=float)[:, None]
    fleet = Fleet(1, n_trees=1, window=n_rows, max_samples=None)
    fleet.process_many(["a"] * n_rows, rows)
    fleet.save(tmp_path / "fleet.db")
    with Fleet.load(tmp_path / "fleet.db") as loaded:
        assert loaded.process("a", [0.5]).score == fleet.process("a", [0.5]).score


@pytest.mark.parametrize("name", ["open", "common_state", "_prepare"])
def test_an_interrupted_load_closes_the_store(tmp_path, monkeypatch, name):
    """The store is not left to the garbage collector, which may run much later."""
    path = tmp_path / "fleet.db"
    Fleet(1, **SMALL).save(path)
    gc.disable()
    try:
        whole = getattr(KeyStore, name)
        monkeypatch.setattr(KeyStore, name, lambda store: (whole(store), interrupt()))
        with pytest.raises(KeyboardInterrupt) as interrupted:
            Fleet.load(path)
        monkeypatch.undo()
        with Fleet.load(path) as loaded:
            assert loaded.n_rows == 0
        assert interrupted.type is KeyboardInterrupt  # its traceback still refers to the first store
    finally:
        gc.enable()


def test_loading_a_store_in_use_does_not_release_its_lock(tmp_path):
    """A process loses its locks on a file when it closes the file, however often it has opened it."""
    path = tmp_path / "fleet.db"
    program = f"from imondrian import Fleet; Fleet.load({str(path)!r})"
    with Fleet(1, store=path, **SMALL) as fleet:
        fleet.save()
        for load in (imondrian.load, load_model, load_extra):
            with pytest.raises(ImondrianError):
                load(path)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert "another process or fleet is using it" in done.stderr
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_fleet_that_was_not_closed_does_not_keep_its_store_locked(tmp_path):
    gc.disable()
    try:
        fleet = Fleet(1, store=tmp_path / "fleet.db", **SMALL)
        fleet.save()
        del fleet
        with Fleet.load(tmp_path / "fleet.db") as loaded:
            assert loaded.n_rows == 0
    finally:
        gc.enable()


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupted_copy_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(key_store, "_check_is_not_in_use", lambda _path: interrupt())
    path = Path(tmp_path / "fleet.db")
    path.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        Fleet(1, **SMALL).save(path)
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == ["fleet.db"]


def test_a_name_too_long_for_the_files_beside_the_store_is_refused(tmp_path):
    fleet = Fleet(1, n_trees=2, window=8, max_samples=4)
    fleet.process("a", [1.0])
    fleet.save(tmp_path / ("ä" * 123 + "b"))
    assert Fleet.load(tmp_path / ("ä" * 123 + "b")).n_rows_of("a") == 1
    for name in ("ä" * 124, "a" * 255):
        with pytest.raises(StoreError, match=r"at most 247 bytes, but '.*' has 2"):
            fleet.save(tmp_path / name)
        with pytest.raises(StoreError, match="at most 247 bytes"):
            Fleet(1, n_trees=2, window=8, max_samples=4, store=tmp_path / name)
    assert len(list(tmp_path.iterdir())) == 1
