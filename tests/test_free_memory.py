"""A forest that needs more memory than is free is refused before the memory is used."""

import numpy as np
import pytest

from imondrian import IsolationMondrianForest, MondrianForest
from imondrian.base import free_memory
from imondrian.base.free_memory import check_memory, free_bytes

GB = 10**9


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Let the module read the files of a system that has 3 GB free, and of no container."""
    monkeypatch.setattr(free_memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "_CONTAINER", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:   8000000 kB\nMemAvailable:   2829688 kB\nSwapFree:   100000 kB\n\n")
    return tmp_path


def set_container(folder, limit, used, cached=0):
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nactive_file {cached}\n")


def test_the_memory_of_this_machine_is_found():
    assert 2**20 < free_bytes() < 2**50


def test_the_limit_of_a_container_counts(system):
    assert free_bytes() == 1024 * 2_929_688
    set_container(system, 2 * GB, GB // 2)
    assert free_bytes() == 2 * GB - GB // 2
    set_container(system, 2 * GB, 2 * GB, cached=GB // 4)  # cached files can be dropped
    assert free_bytes() == GB // 2
    set_container(system, 2 * GB, 3 * GB)
    assert free_bytes() == 0
    set_container(system, "max", GB)
    assert free_bytes() == 1024 * 2_929_688


def test_small_requests_are_never_refused_and_large_ones_name_the_figures(system):
    set_container(system, GB, GB)
    check_memory(2**28, "It needs")
    with pytest.raises(MemoryError, match=r"^It needs 5\.0 GB of memory, but only 0\.0 GB are free\.$"):
        check_memory(5 * GB, "It needs")


def test_a_forest_that_does_not_fit_is_refused(system):
    X = np.random.default_rng(0).normal(size=(100, 20_000))
    with pytest.raises(MemoryError, match=r"^100 trees of 100 points with 20000 features need \d\.\d GB"):
        MondrianForest(100).build(X)
    with pytest.raises(MemoryError, match=r"but only 3\.0 GB are free"):
        IsolationMondrianForest(n_estimators=100).fit(X)
    assert IsolationMondrianForest(n_estimators=2, random_state=0).fit(X).score_samples(X[:1]).shape == (1,)


@pytest.mark.parametrize("settings", [{}, {"max_samples": 64, "window": 3_000}])
def test_a_forest_whose_points_are_equal_or_shared_is_not_refused(system, settings):
    set_container(system, GB, GB - GB // 3)
    X = np.tile(np.random.default_rng(0).normal(size=(20, 5)), (10_000, 1))
    assert MondrianForest(20, **settings).build(X).score(X[:1]).shape == (1,)


def test_systems_that_report_nothing_useful_refuse_nothing(system, monkeypatch):
    (system / "meminfo").write_text("")
    monkeypatch.setattr(free_memory.os, "sysconf", lambda _name: -1)
    assert free_bytes() is None
    check_memory(2**50, "It needs")
