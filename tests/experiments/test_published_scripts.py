"""The authors' scripts compute what the paper prints for incremental LOF and osPCA."""

import numpy as np
import pytest

from imondrian import MondrianForest, datasets
from imondrian.experiments import online
from imondrian.experiments.methods import Method
from imondrian.experiments.paper_results import PUBLISHED, TableCell
from imondrian.experiments.published_scripts import PublishedForest, PublishedLOF, PublishedOsPCA1, PublishedOsPCA2
from imondrian.experiments.splits import published_stages

SCRIPTS = {"ospca1": PublishedOsPCA1, "ospca2": PublishedOsPCA2, "incremental-lof": PublishedLOF}
SCORED_ONCE = (PublishedOsPCA1, PublishedOsPCA2)


@pytest.mark.parametrize("method", SCRIPTS)
@pytest.mark.parametrize("name", ["pima", "thyroid", "ionosphere", "wine"])
def test_the_scripts_reproduce_the_papers_results_to_two_digits(data_folder, name, method):
    """The paper truncates where we round."""
    data = datasets.load(name, data_folder, download=False)
    rows = online.measure_stages(data, published_stages(data), Method("", lambda _: SCRIPTS[method]()), 0)
    published = [PUBLISHED[TableCell("online", method, name, row["part"])].auc for row in rows]
    assert [row["auc"] for row in rows] == pytest.approx(published, abs=0.015)


@pytest.mark.parametrize("script", SCORED_ONCE)
def test_a_row_is_scored_once_against_the_rows_before_it(script):
    rng = np.random.default_rng(0)
    first, more = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    whole = script().fit(first).extend(more).learned_scores()
    np.testing.assert_allclose(script().fit(first).extend(more[:10]).learned_scores(), whole[:50], atol=1e-12)
    np.testing.assert_allclose(script().fit(first).extend(more[:10]).extend(more[10:]).learned_scores(), whole)


def test_all_scores_of_the_first_stage_are_written_to_one_element():
    scores = PublishedOsPCA2().fit(np.random.default_rng(0).normal(size=(40, 3))).learned_scores()
    assert np.count_nonzero(scores) == 1


def test_the_forest_learns_the_first_stage_again():
    rng = np.random.default_rng(0)
    first, more = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    scores = PublishedForest(7).fit(first).extend(more).learned_scores()
    forest = MondrianForest(seed=7).build(first).extend(first[:30])
    np.testing.assert_array_equal(scores, forest.score(np.vstack([first, more])))
