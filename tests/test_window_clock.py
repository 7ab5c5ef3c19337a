"""Windows of every length can be saved at any time while they fill, and continue bit for bit."""

import numpy as np
import pytest

from imondrian import MondrianForest, StreamDetector
from imondrian.engine.window import Selection, step_length
from imondrian.forest.samplers import Window
from imondrian.model_files import from_bytes, to_bytes

X = np.random.default_rng(0).normal(size=(3 * 512 + 40, 1))


@pytest.mark.parametrize("first", [1, 129, 1009, 4085])
def test_the_clock_of_a_window_passes_its_checks_while_it_fills(first):
    """Checked at, just after and just before the steps of three windows; between steps, the bound only grows."""
    for length in range(first, min(8 * first + 128, 4097)):
        window = Window(length, Selection(1.0, 1))
        window.ring = np.full((0, 1), np.nan)  # only the clock is checked
        number, next_step = 0, 1
        while number <= 3 * length:
            for window.number in {number, min(number + 1, next_step - 1), next_step - 1}:
                window.next_step = next_step
                assert list(window.problems()) == [], (length, window.number)
            number, next_step = next_step, next_step + step_length(next_step, length)


def check_resumed(length, n_points, settings):
    """Save a forest after n_points points, load it, and compare it with one that was not saved."""
    reference = MondrianForest(1, window=length, scale="std", **settings).extend(X[:n_points])
    resumed = from_bytes(to_bytes(reference))
    rows = X[n_points : n_points + 40]
    np.testing.assert_array_equal(resumed.score_and_extend(rows, "size"), reference.score_and_extend(rows, "size"))
    assert to_bytes(resumed) == to_bytes(reference)


@pytest.mark.parametrize("first", range(1, 513, 32))
def test_a_window_can_be_saved_around_the_moment_it_is_full(first):
    for length in range(first, first + 32):
        for n_points in (length - 1, length, length + 1, length + length // 8 // 2, 2 * length + 3):
            if n_points > 0:
                check_resumed(length, n_points, {"max_samples": 3})


@pytest.mark.exhaustive
@pytest.mark.parametrize("length", range(1, 513))
def test_every_window_can_be_saved_at_every_point_of_its_first_three_windows(length):
    for n_points in range(1, 3 * length + 1):
        check_resumed(length, n_points, {"max_samples": 3})


def test_a_detector_whose_window_has_just_become_full_can_be_restored():
    detector = StreamDetector(1, window=60, n_trees=5)
    detector.process_many(X[:61])
    assert from_bytes(to_bytes(detector)).process(X[61]) == detector.process(X[61])
