"""The pool: every task once, errors not lost, pieces that cover all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.engine.threads import pieces, run


@given(length=st.integers(0, 1000), largest=st.integers(1, 300))
def test_pieces_cover_everything_once(length, largest):
    covered = [i for piece in pieces(length, largest) for i in range(piece.start, piece.stop)]
    assert covered == list(range(length))
    assert all(piece.stop - piece.start <= largest for piece in pieces(length, largest))


@pytest.mark.parametrize("n_jobs", [1, 2, 5, -1, -2, -100])
def test_every_task_is_done(n_jobs):
    done = []
    run([lambda i=i: done.append(i) for i in range(20)], n_jobs)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_a_task_is_raised(n_jobs):
    with pytest.raises(ZeroDivisionError):
        run([lambda: 1 / 0, lambda: None], n_jobs)
