"""Threads: every task runs once, errors are not lost, and slices cover everything."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.engine.threads import Threads, even_slices


@given(length=st.integers(0, 1000), largest=st.integers(1, 300))
def test_slices_cover_everything_once(length, largest):
    slices = even_slices(length, largest)
    assert [i for part in slices for i in range(part.start, part.stop)] == list(range(length))
    assert all(part.stop - part.start <= largest for part in slices)


@pytest.mark.parametrize("n_jobs", [1, 2, 5, -1, -2, -100])
def test_every_task_runs_once(n_jobs):
    done = []
    Threads(n_jobs).run([lambda i=i: done.append(i) for i in range(20)])
    assert sorted(done) == list(range(20))


def test_the_number_of_threads_is_limited():
    assert Threads(2**31 - 2).n_threads == 256


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_a_task_is_raised(n_jobs):
    with pytest.raises(ZeroDivisionError):
        Threads(n_jobs).run([lambda: 1 / 0, lambda: None])


def test_after_an_error_running_tasks_are_waited_for_and_no_other_starts():
    done, may_end = [], threading.Event()

    def fail():
        raise ZeroDivisionError

    def long_task():
        may_end.wait(5.0)
        done.append("long")

    def release():
        time.sleep(0.05)
        may_end.set()

    threading.Thread(target=release).start()
    with pytest.raises(ZeroDivisionError):
        Threads(2).run([long_task, fail, *[lambda: done.append("late")] * 50])
    assert done == ["long"]
