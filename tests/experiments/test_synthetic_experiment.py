"""Figures 1 and 2: forests with the paper's settings, five stratified steps, and counts that add up."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score

from imondrian import MondrianForest
from imondrian.alarms.thresholds import two_means
from imondrian.datasets import make_synthetic
from imondrian.experiments.synthetic_experiment import (
    BATCH_FIGURE,
    CLAIM_COLUMNS,
    CLAIMS,
    COLUMNS,
    HALF,
    K_MEANS,
    ONLINE_FIGURE,
    Detection,
    batch_detections,
    claims,
    online_detections,
    rows_of,
    run,
)

NAMES = ["blob", "moons"]
SEED = 3
LEVELS = [0.1, 0.3, 0.5, 0.7]
REFERENCES = {
    "imforest": lambda X: MondrianForest(100, max_samples=256, seed=SEED).build(X).score(X),
    "iforest": lambda X: -IsolationForest(random_state=SEED).fit(X).score_samples(X),
    "size-std": lambda X: MondrianForest(100, max_samples=256, scale="std", seed=SEED).build(X).score(X, "size"),
}


def silent(_word, _share):
    pass


@pytest.fixture(scope="module")
def result():
    return run(NAMES, SEED, [1, 2], silent, n_nodes=15)


@pytest.fixture(scope="module")
def moons():
    return make_synthetic("moons", SEED)


def thresholds_of(scores):
    return {HALF: 0.5, K_MEANS: two_means(scores)}


# -- what is run -------------------------------------------------------------------------------------------------------


def test_batch_methods_have_the_settings_of_the_paper(moons):
    detections = [detection for detection, _ in batch_detections(moons, SEED)]
    assert [detection.method for detection in detections] == list(REFERENCES)
    for detection in detections:
        assert np.array_equal(detection.scores, REFERENCES[detection.method](moons.X))
        assert detection.thresholds == thresholds_of(detection.scores)
        assert detection.step is None


def test_the_online_forest_is_built_on_the_first_part_and_extended_by_the_others(moons):
    detections = [detection for detection, _ in online_detections(moons, SEED)]
    ends = [0, *(len(detection.points) for detection in detections)]
    forest = MondrianForest(100, seed=SEED)
    for (start, end), detection in zip(pairwise(ends), detections, strict=True):
        part = detection.points[start:end]
        forest = forest.build(part) if start == 0 else forest.extend(part)
        assert np.allclose(detection.scores, forest.score(detection.points))
        assert detection.thresholds == thresholds_of(detection.scores)


def test_each_step_adds_a_fifth_of_the_outliers_and_of_the_rows(moons):
    detections = [detection for detection, _ in online_detections(moons, SEED)]
    assert [detection.step for detection in detections] == [1, 2, 3, 4, 5]
    assert [np.count_nonzero(detection.is_outlier) for detection in detections] == [9, 18, 27, 36, 45]
    assert [len(detection.points) for detection in detections] == [60, 120, 180, 240, 300]
    for before, after in pairwise(detections):
        assert np.array_equal(after.points[: len(before.points)], before.points)
    order = np.lexsort(detections[-1].points.T)
    assert np.array_equal(detections[-1].points[order], moons.X[np.lexsort(moons.X.T)])
    assert np.array_equal(detections[-1].is_outlier[order], moons.y[np.lexsort(moons.X.T)] == 1)


def test_a_surface_belongs_to_its_step_and_covers_all_sets(result):
    for dataset in (*result.batch, *result.online):
        for item in dataset.maps:
            assert item.surface.scores.shape == (15, 15)
            assert (item.surface.x[0], item.surface.x[-1]) == (
                result.batch[0].maps[0].surface.x[0],
                result.batch[0].maps[0].surface.x[-1],
            )
            assert (item.detection.points >= [item.surface.x[0], item.surface.y[0]]).all()
            assert (item.detection.points <= [item.surface.x[-1], item.surface.y[-1]]).all()
    first, second = (panel for panel in result.online[0].maps[:2])
    forest = MondrianForest(100, seed=SEED).build(first.detection.points)
    nodes = np.stack(np.meshgrid(first.surface.x, first.surface.y), axis=-1).reshape(-1, 2)
    assert np.array_equal(first.surface.scores.ravel(), forest.score(nodes))
    assert not np.array_equal(first.surface.scores, second.surface.scores)


def test_the_same_seeds_give_the_same_result(result):
    again = run(NAMES, SEED, [1, 2], silent, n_nodes=15)
    assert again.rows == result.rows
    assert again.claims == result.claims
    assert np.array_equal(again.online[1].maps[4].surface.scores, result.online[1].maps[4].surface.scores)


def test_progress_reaches_1():
    shares = []
    run(["blob"], SEED, [5, 6], lambda _, share: shares.append(share), n_nodes=5)
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0])


# -- rows --------------------------------------------------------------------------------------------------------------


def test_there_is_a_row_for_every_set_method_step_and_rule(result):
    keys = [tuple(row[name] for name in ("figure", "set", "method", "step", "rule")) for row in result.rows]
    batch = [
        (BATCH_FIGURE, name, method, None, rule) for name in NAMES for method in REFERENCES for rule in (HALF, K_MEANS)
    ]
    online = [
        (ONLINE_FIGURE, name, "imforest", t, rule) for name in NAMES for t in range(1, 6) for rule in (HALF, K_MEANS)
    ]
    assert keys == batch + online
    assert all(set(row) == set(COLUMNS) for row in result.rows)
    assert {row["seed"] for row in result.rows} == {SEED}


@given(
    truth=st.lists(st.booleans(), min_size=2, max_size=30).filter(lambda flags: 0 < sum(flags) < len(flags)),
    threshold=st.floats(0.0, 1.0) | st.sampled_from(LEVELS),  # a score at the threshold is normal
    data=st.data(),
)
def test_counts_and_measures_equal_those_of_scikit_learn(truth, threshold, data):
    scores = np.array(data.draw(st.lists(st.sampled_from(LEVELS), min_size=len(truth), max_size=len(truth))))
    is_outlier, points = np.array(truth), np.zeros((len(truth), 2))
    (row,) = rows_of("1", "any", Detection("m", None, points, is_outlier, scores, {"r": threshold}), seed=0)
    flagged = scores > threshold
    assert row["n_rows"] == len(truth)
    assert row["flagged"] == flagged.sum() == row["true_positives"] + row["false_positives"]
    assert row["true_positives"] + row["false_negatives"] == is_outlier.sum()
    assert row["recall"] == pytest.approx(100.0 * recall_score(is_outlier, flagged))
    assert row["f1"] == pytest.approx(100.0 * f1_score(is_outlier, flagged, zero_division=0.0))
    assert row["auc"] == pytest.approx(100.0 * roc_auc_score(is_outlier, scores))
    if flagged.any():
        assert row["precision"] == pytest.approx(100.0 * precision_score(is_outlier, flagged))
    else:
        assert row["precision"] is None


# -- claims ------------------------------------------------------------------------------------------------------------


def test_claims_are_means_over_the_seeds(result):
    rows = [row for seed in (1, 2) for row in run(NAMES, seed, [], silent, n_nodes=2).rows]
    for line in result.claims:
        (claim,) = [claim for claim in CLAIMS if claim.text == line["claim"]]
        for side, name in ((claim.this, "this_mean"), (claim.that, "that_mean")):
            values = [
                row[line["measure"]]
                for row in rows
                if (row["figure"], row["method"], row["rule"], row["set"]) == (*side, line["set"])
            ]
            assert line[name] == pytest.approx(np.mean(values))
        assert line["difference"] == pytest.approx(line["this_mean"] - line["that_mean"])


def test_every_claim_is_tested_on_every_set(result):
    keys = [(line["claim"], line["measure"], line["set"]) for line in result.claims]
    assert keys == [(claim.text, measure, name) for claim in CLAIMS for measure in claim.measures for name in NAMES]
    assert all(tuple(line) == CLAIM_COLUMNS and line["seeds"] == 2 for line in result.claims)


def test_claims_without_seeds_are_empty_and_with_one_seed_have_no_deviation():
    assert claims(["blob"], [], silent) == []
    assert {line["deviation"] for line in claims(["blob"], [4], silent)} == {0.0}
