"""The experiments follow the paper: folds, stages, budgets, and measurements."""

import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from imondrian import MondrianForest, datasets
from imondrian.base.errors import ImondrianError, InvalidInputError
from imondrian.datasets import Dataset, make_synthetic
from imondrian.experiments import batch, long_stream, online, quality
from imondrian.experiments.comparison import compare
from imondrian.experiments.methods import BATCH, ONLINE, QUALITY, Method
from imondrian.experiments.paper_results import PUBLISHED
from imondrian.experiments.ranking_metrics import auc
from imondrian.experiments.repeats import within_budget
from imondrian.experiments.splits import (
    N_STAGES,
    n_folds_of,
    published_folds,
    published_stages,
    stratified_folds,
    stratified_stages,
)
from imondrian.experiments.worker_pool import worker_pool


def silent(_text, _share):
    """Ignore progress."""


def one_by_one(work, arguments, progress):
    with worker_pool(1) as parallel_map:
        return parallel_map(work, arguments, progress)


@pytest.fixture(scope="module")
def blob():
    return make_synthetic("blob", seed=3)


class Spy:
    """A detector that records its input and scores a row by its first feature."""

    def __init__(self):
        self.shown = []
        self.scored = []

    def fit(self, X):
        self.shown = [X]
        return self

    def extend(self, X):
        self.shown.append(X)
        return self

    def score(self, X):
        self.scored.append(X)
        return X[:, 0]

    def learned_scores(self):
        return np.vstack(self.shown)[:, 0]


# -- repeats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("budget", "n"), [(0.0, 1), (1.0, 1), (2.0, 2), (3.9, 3), (100.0, 5)])
def test_repeats_end_when_the_next_would_exceed_the_budget(budget, n):
    now = [0.0]
    n_done = 0
    for _ in within_budget(range(5), budget, lambda: now[0]):
        now[0] += 1.0  # each takes one second
        n_done += 1
    assert n_done == n


# -- workers -----------------------------------------------------------------------------------------------------------


def test_processes_do_not_change_the_results_or_their_order(blob):
    sets = [blob, make_synthetic("moons", seed=1)]  # the larger one is second, but runs first
    methods = {name: BATCH[name] for name in ("imforest", "lof", "size-std")}
    with worker_pool(2) as parallel_map:
        reported = []
        rows = batch.run(sets, methods, [0], 2, 60.0, parallel_map, lambda _, share: reported.append(share))
    expected = batch.run(sets, methods, [0], 2, 60.0, one_by_one, silent)
    assert reported == pytest.approx([i / 6 for i in range(1, 7)])
    assert [without_seconds(row) for row in rows] == [without_seconds(row) for row in expected]


def without_seconds(row):
    return {key: value for key, value in row.items() if key != "seconds"}


def test_an_error_in_a_process_is_raised_and_ends_the_others():
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError), worker_pool(2) as parallel_map:
        parallel_map(sleep_or_fail, [(600.0,), (0.0,)], silent)
    assert time.monotonic() - start < 300.0  # a hang, not a matter of speed
    assert not multiprocessing.active_children()


def test_other_child_processes_are_not_ended():
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60.0,))
    other.start()
    try:
        with pytest.raises(ZeroDivisionError), worker_pool(2) as parallel_map:
            parallel_map(sleep_or_fail, [(0.0,)], silent)
        assert other.is_alive()
    finally:
        other.terminate()
        other.join()


def sleep_or_fail(seconds):
    time.sleep(seconds)
    return 1.0 / seconds


def test_a_killed_process_raises():
    with pytest.raises(ImondrianError, match="killed"), worker_pool(2) as parallel_map:
        parallel_map(die, [(), ()], silent)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


# -- batch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [lambda data: published_folds(data, 5), lambda data: stratified_folds(data, 5, 3)])
def test_every_row_is_in_one_test_part_and_otherwise_in_the_training_part(blob, split):
    folds = split(blob)
    assert len(folds) == 5
    np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in folds])), np.arange(len(blob.y)))
    for train, test in folds:
        assert set(train) | set(test) == set(range(len(blob.y)))
        assert not set(train) & set(test)
        assert 0 < blob.y[test].sum() < len(test)


def test_rare_anomalies_are_in_every_fold_or_too_many_folds_raise(blob):
    rare = blob._replace(y=(np.arange(len(blob.y)) < 5).astype(np.uint8))
    assert [int(rare.y[test].sum()) for _, test in published_folds(rare, 5)] == [1] * 5
    with pytest.raises(InvalidInputError, match="blob has 5 rows in its smaller class, too few for 6 folds"):
        n_folds_of(rare, 6)


def test_wine_has_two_folds(blob):
    assert (n_folds_of(blob._replace(name="wine"), 10), n_folds_of(blob, 10)) == (2, 10)


@pytest.mark.parametrize(("name", "method"), [("wine", "svm"), ("wine", "lof"), ("pima", "lof"), ("ionosphere", "svm")])
def test_deterministic_methods_have_the_papers_results_in_the_published_folds(data_folder, name, method):
    data = datasets.load(name, data_folder, download=False)
    rows = batch.run([data], {method: BATCH[method]}, [0], 10, 600.0, one_by_one, silent)
    for cell, entry in compare("batch", rows).items():
        assert entry.measured.auc == pytest.approx(PUBLISHED[cell].auc, abs=0.03)
        assert entry.measured.auc_deviation == pytest.approx(PUBLISHED[cell].auc_deviation, abs=0.03)


def test_both_parts_are_measured_with_the_detector_of_the_fold(blob):
    spies = []

    def make(_seed):
        spies.append(Spy())
        return spies[-1]

    rows = batch.run([blob], {"spy": Method("spy", make)}, [0], 3, 1e9, one_by_one, silent)
    assert len(spies) == 4  # the first one warms up
    for fold, spy, (train, test) in zip(published_folds(blob, 3), spies[1:], pairs(rows), strict=True):
        np.testing.assert_array_equal(spy.shown[0], blob.X[fold[0]])
        np.testing.assert_array_equal(spy.scored[0], blob.X[fold[1]])
        assert train["auc"] == auc(blob.y[fold[0]], blob.X[fold[0], 0])
        assert test["auc"] == auc(blob.y[fold[1]], blob.X[fold[1], 0])
        assert (train["part"], test["part"]) == ("train", "test")
        assert (train["n_rows"], test["n_rows"]) == (len(fold[0]), len(fold[1]))
    assert [row["fold"] for row in rows] == [1, 1, 2, 2, 3, 3]


def pairs(rows):
    return [rows[i : i + 2] for i in range(0, len(rows), 2)]


def test_a_slow_method_is_run_on_fewer_folds_but_at_least_one(blob):
    rows = batch.run([blob], {"lof": BATCH["lof"], "imforest": BATCH["imforest"]}, [0], 4, 0.0, one_by_one, silent)
    assert {(row["method"], row["fold"]) for row in rows} == {("lof", 1), ("imforest", 1)}


def test_progress_is_reported_up_to_the_end(blob):
    reported = []
    batch.run(
        [blob], {"lof": BATCH["lof"]}, [0], 2, 9.0, one_by_one, lambda text, share: reported.append((text, share))
    )
    assert reported == [("batch: blob, LOF", 1.0)]


@pytest.mark.parametrize("name", BATCH)
def test_every_method_of_table_2_finds_far_points(name):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(200, 3)), rng.normal(size=(10, 3)) * 20.0])
    data = Dataset("made", X, np.repeat([0, 1], [200, 10]).astype(np.uint8), None, None)
    rows = batch.run([data], {name: BATCH[name]}, [0], 2, 60.0, one_by_one, silent)
    assert min(row["auc"] for row in rows) > 80.0


# -- online ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [published_stages, lambda data: stratified_stages(data, 5)])
def test_stages_share_the_anomalies_evenly_and_include_every_row(blob, split):
    stages = split(blob)
    assert len(stages) == N_STAGES
    np.testing.assert_array_equal(np.sort(np.concatenate(stages)), np.arange(len(blob.y)))
    assert [int(blob.y[stage].sum()) for stage in stages] == [9] * 5


def test_all_rows_so_far_are_scored_after_each_stage(blob):
    spy, stages = Spy(), stratified_stages(blob, 0)
    rows = online.measure_stages(blob, stages, Method("spy", lambda _: spy), 0)
    for shown, stage in zip(spy.shown, stages, strict=True):
        np.testing.assert_array_equal(shown, blob.X[stage])
    for number, row in enumerate(rows, 1):
        so_far = np.concatenate(stages[:number])
        assert (row["part"], row["n_rows"]) == (str(number), len(so_far))
        assert row["auc"] == auc(blob.y[so_far], blob.X[so_far, 0])


def test_the_forest_of_table_3_is_extended_not_rebuilt(blob):
    stages = published_stages(blob)
    rows = online.run([blob], {"imforest": ONLINE["imforest"]}, [4], 60.0, one_by_one, silent)
    forest = MondrianForest(100, max_samples=None, scale=None, seed=4).build(blob.X[stages[0]])
    for stage in stages[1:]:
        forest.extend(blob.X[stage])
    so_far = np.concatenate(stages)
    assert rows[-1]["auc"] == auc(blob.y[so_far], forest.score(blob.X[so_far]))


def test_deterministic_methods_are_run_once(blob):
    rows = online.run([blob], ONLINE, [0, 1], 60.0, one_by_one, silent)
    for name, method in ONLINE.items():
        seeds = [row["seed"] for row in rows if row["method"] == name]
        assert seeds == ([0] * 5 + [1] * 5 if method.is_random else [0] * 5)


@pytest.mark.parametrize("name", [name for name, method in ONLINE.items() if not method.is_random])
def test_deterministic_methods_do_not_depend_on_the_seed(blob, name):
    one, other = (ONLINE[name].make(seed).fit(blob.X).learned_scores() for seed in (0, 1))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ONLINE)
def test_every_method_of_table_3_finds_outlying_directions(name):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) * [5.0, 0.5, 0.5]
    y = np.zeros(300, np.uint8)
    X[:15], y[:15] = X[:15] * [2.0, 40.0, 1.0], 1
    data = Dataset("made", X, y, None, None)
    rows = online.run([data], {name: ONLINE[name]}, [0], 60.0, one_by_one, silent)
    assert [row["part"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert rows[-1]["auc"] > 80.0


# -- quality -----------------------------------------------------------------------------------------------------------


def test_novelty_is_trained_on_half_of_the_inliers_and_tested_on_all_other_rows(blob):
    spy, is_anomaly = Spy(), blob.y.astype(bool)
    labels, scores = quality.novelty(spy, blob.X, is_anomaly)
    inliers = blob.X[~is_anomaly]
    np.testing.assert_array_equal(spy.shown[0], inliers[:50])
    assert (len(scores), labels.sum()) == (50 + 45, 45)


def test_large_sets_are_sampled_again_for_each_seed(blob):
    rows = quality.run([blob], {"depth-std": QUALITY["depth-std"]}, [0, 1], 60, 60.0, one_by_one, silent)
    assert [(row["mode"], row["seed"], row["n_rows"]) for row in rows] == [
        ("batch", 0, 60),
        ("batch", 1, 60),
        ("novelty", 0, 60),
        ("novelty", 1, 60),
    ]
    assert rows[0]["auc"] != rows[1]["auc"]


@pytest.mark.parametrize(("n_rows", "n_anomalies"), [(20, 20), (2_000, 60), (20_000, 30)])
def test_samples_have_the_share_of_anomalies_but_at_least_30(n_rows, n_anomalies):
    y = np.zeros(n_rows, np.uint8)
    y[: 20 if n_rows == 20 else 120] = 1
    data = Dataset("made", np.zeros((n_rows, 1)), y, None, None)
    chosen = quality.chosen_rows(data, seed=0, max_rows=1_000)
    assert len(chosen) == len(set(chosen)) == min(n_rows, 1_000)
    assert y[chosen].sum() == n_anomalies


@pytest.mark.parametrize("name", QUALITY)
def test_every_method_of_the_quality_table_runs_in_both_modes(blob, name):
    rows = quality.run([blob], {name: QUALITY[name]}, [0], 10_000, 60.0, one_by_one, silent)
    assert [row["mode"] for row in rows] == ["batch", "novelty"]
    assert min(row["auc"] for row in rows) > 75.0


@pytest.mark.parametrize("name", ["lof", "knn", "svm", "ecod", "hbos", "inne"])
def test_peers_get_standardised_features(blob, name):
    stretched = blob._replace(X=blob.X * [1.0, 2.0**20])  # exact, without rounding
    runs = [
        quality.run([data], {name: QUALITY[name]}, [0], 10_000, 1.0, one_by_one, silent) for data in (blob, stretched)
    ]
    assert [row["auc"] for row in runs[0]] == pytest.approx([row["auc"] for row in runs[1]], abs=1e-9)


# -- long stream -------------------------------------------------------------------------------------------------------


def test_a_long_stream_is_measured_stage_by_stage_in_constant_memory():
    rows = long_stream.run(12_000, 0, silent)
    assert [row["part"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert rows[-1]["n_rows"] == 12_000
    assert len({row["detector_megabytes"] for row in rows}) == 1
    assert all(row["seconds"] > 0.0 and row["peak_megabytes"] > row["detector_megabytes"] for row in rows)


def test_generated_rows_are_reproducible_and_have_the_requested_number():
    one, other = (np.vstack(list(long_stream.generated_rows(5_000, 3))) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert one.shape == (5_000, 77)
