"""The reasons for alarms: they do not depend on how a stream is divided, and need few reference forests."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import imondrian.stream.alarm_reasons
from imondrian import StreamDetector
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.model_files import from_bytes, to_bytes
from imondrian.stream.alarm_reasons import longest_block, n_reference_points, reference_end

X = np.random.default_rng(8).normal(size=(450, 2))
X[::7, 0] += 9.0
EVERY_ALARM = {"gap": 1, "ignore_within": {0: 0.5}}  # rules that need the reasons of every alarm


def detector_of(**parameters):
    given = {"window": 64, "max_samples": 32, "n_trees": 4, "threshold": "top 30%", "rules": EVERY_ALARM}
    return StreamDetector(2, **given | parameters)


@given(window=st.integers(1, 5_000), number=st.integers(0, 20_000))
def test_the_points_that_explain_an_alarm_come_before_it_and_are_still_in_the_window(window, number):
    end, n_points = reference_end(number, window), n_reference_points(window)
    assert number - max(min(number, window) // 16, 1) < end <= number
    n_shown = number + longest_block(window)  # the alarm is the first row of the longest block
    assert window == 1 or end - n_points >= n_shown - window


@settings(deadline=None, max_examples=12)
@given(
    window=st.sampled_from([1, 2, 3, 16, 33, 64, 200]),
    ends=st.lists(st.integers(0, 449), max_size=6),
    learn_anomalies=st.booleans(),
    rules=st.sampled_from([EVERY_ALARM, {"gap": 1}, {"gap": 3, "side": {0: "low", 1: "high"}}]),
)
def test_reasons_do_not_depend_on_calls_or_restarts(window, ends, learn_anomalies, rules):
    parameters = {"window": window, "learn_anomalies": learn_anomalies, "warm_up": min(window, 20), "rules": rules}
    whole, single, divided, resumed = (detector_of(**parameters) for _ in range(4))
    events = [[], [], []]
    whole.process_many(X)
    for x in X:
        single.process(x)
        events[0] += single.events
    for rows in np.split(X, sorted(ends)):
        divided.process_many(rows)
        events[1] += divided.events
        resumed = from_bytes(to_bytes(resumed))
        resumed.process_many(rows)
        events[2] += resumed.events
    assert list(whole.events) == events[0] == events[1] == events[2]
    assert whole.incidents == single.incidents == divided.incidents == resumed.incidents
    assert to_bytes(whole) == to_bytes(single) == to_bytes(divided) == to_bytes(resumed)


def test_forgotten_points_explain_nothing():
    kept, resumed = (detector_of(window=400, max_samples=None, threshold="top 5%") for _ in range(2))
    for detector in (kept, resumed):
        detector.process_many(X[:385])
        detector.process_many([[0.0, 50.0], [0.0, 51.0]])
        assert detector._explainer._reference is not None
        detector.forget(X[300:350])
    resumed = from_bytes(to_bytes(resumed))
    for detector in (kept, resumed):
        detector.process_many(np.zeros((3, 2)))
        detector.process_many([[0.0, 55.0], [0.0, 56.0]])
        assert detector.n_seen == 392
        assert [event.incident.reasons[0].value for event in detector.events] == [56.0]
    assert reference_end(385, 400) == reference_end(391, 400) == 384
    assert kept.events == resumed.events


@pytest.fixture
def n_built(monkeypatch):
    """Return a list with an entry for each reference forest that is built."""
    built = []

    class Counted(MondrianForest):
        def build(self, X, *args):
            built.append(len(X))
            return super().build(X, *args)

    monkeypatch.setattr(imondrian.stream.alarm_reasons, "MondrianForest", Counted)
    return built


@pytest.mark.parametrize("batch", [1, 10, 450])
def test_alarms_share_their_reference_forests(n_built, batch):
    detector = detector_of(window=256, warm_up=64)
    alarms = sum(detector.process_many(rows).is_anomaly.sum() for rows in np.split(X, range(batch, 450, batch)))
    ends = {reference_end(number, 256) for number in range(64, 450)}
    assert len(n_built) <= len(ends) < alarms / 2


def test_a_reference_forest_is_freed_when_it_is_not_needed_any_more():
    detector = detector_of(window=256, threshold=0.01)
    detector.process_many(X[:400])
    detector.process([50.0, 0.0])
    assert detector.rules.need_reasons
    assert detector._explainer._reference is not None
    for x in np.zeros((64, 2)):
        detector.process(x)
    assert detector._explainer._reference is None


def test_without_rules_for_features_no_reference_forest_is_kept():
    detector = StreamDetector(2, window=256, threshold=0.01)
    detector.process_many(X[:400])
    detector.process([50.0, 0.0])
    assert detector.incidents[-1].reasons
    assert detector._explainer._reference is None
