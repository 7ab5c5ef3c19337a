"""The notes of a fitted model: invalid ones are refused with the rule that they break."""

import numpy as np
import pytest

from imondrian import IsolationMondrianForest
from imondrian.fitted_model import FittedModel, fit


@pytest.fixture(scope="module")
def model():
    parameters = IsolationMondrianForest(n_estimators=2, random_state=0).get_params()
    return fit(np.array([[0.0], [1.0], [5.0]]), parameters, seed=0).model


def test_a_model_is_restored_from_its_notes(model):
    restored = FittedModel.from_notes(model.forest, model.notes())
    assert (restored.contamination, restored.threshold) == (model.contamination, model.threshold)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offset": 5}, "the offset must be between -1 and 0, but is 5"),
        ({"parameters": {}}, r"the parameters must be \['contamination', .*\], but are \[\]"),
        ({"kind": "best"}, r"the kind of the score must be one of \['depth', 'expected', 'size'\], but is 'best'"),
        ({"window": float("inf")}, "window must be finite, but is inf"),
    ],
)
def test_invalid_notes_are_refused_with_the_rule(model, change, message):
    notes = model.notes()
    damaged = notes | change if change.keys() <= notes.keys() else notes | {"parameters": notes["parameters"] | change}
    with pytest.raises(ValueError, match=message):
        FittedModel.from_notes(model.forest, damaged)
