"""Incidents, compared with a plain state machine; their rules; saving; and incidents of a detector."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imondrian
from imondrian import IncidentRules, StreamDetector
from imondrian.alarms.incidents import AlarmReason, IncidentTracker, LabelledRows, checked_rules
from imondrian.stream.incident_records import incident_as_json
from imondrian.stream.stream_state import StreamState

LEVEL = 3.0
RULES = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(0, 10)).map(lambda rules: IncidentRules(*rules))
SURPRISES = st.lists(st.sampled_from([0.5, 0.5, 0.5, 3.2, 3.6, 4.5, 6.0]), min_size=1, max_size=60).map(np.array)


def plain_incidents(surprises, rules):
    """Follow the definition row by row; return the number of the incident open after each row, and all incidents."""
    incidents, current, alarms, numbers = [], None, [], []
    last_closed = None
    for i, surprise in enumerate(surprises):
        if alarms and i - alarms[-1][0] >= rules.gap and not surprise > LEVEL:
            if current is not None:
                current["closed"] = last_closed = i
                current = None
            alarms = []
        if surprise > LEVEL:
            if alarms and i - alarms[-1][0] > rules.gap:
                alarms = []
            alarms.append((i, surprise))
            if current is None:
                is_cool = last_closed is None or i > last_closed + rules.cooldown
                is_rare = len(alarms) > 1 or surprise >= LEVEL + 1.0
                if is_cool and is_rare and len(alarms) >= rules.min_points:
                    current = {"number": len(incidents), "opened": i, "closed": None}
                    incidents.append(current)
            if current is not None:
                peak = max(alarms, key=lambda alarm: alarm[1])
                current |= {"first": alarms[0][0], "last": i, "n_alarms": len(alarms), "peak": peak[0]}
                current |= {"surprise": peak[1]}
        numbers.append(-1 if current is None else current["number"])
    return numbers, incidents


def rows_of(surprises, first=0):
    return LabelledRows(first, surprises > LEVEL, 1.0 - 0.5**surprises, surprises)


def no_reasons(_position):
    return ()


def observe(tracker, surprises, ends=()):
    """Return the numbers and the events of surprises that are observed in several blocks."""
    numbers, events, first = [], [], 0
    for block in np.split(surprises, sorted(ends)):
        found, new = tracker.observe(rows_of(block, first), LEVEL, None, no_reasons)
        numbers, events, first = [*numbers, *found.tolist()], events + new, first + len(block)
    return numbers, events


@given(surprises=SURPRISES, rules=RULES, ends=st.lists(st.integers(0, 60), max_size=5))
def test_incidents_follow_the_definition_however_the_stream_is_divided(surprises, rules, ends):
    numbers, expected = plain_incidents(surprises.tolist(), rules)
    tracker = IncidentTracker(rules)
    found, events = observe(tracker, surprises, ends)
    assert found == numbers
    assert tracker.n_opened == len(expected)
    assert len(tracker.latest) == len(expected)
    for incident, plain in zip(tracker.latest, expected, strict=True):
        assert {name: getattr(incident, name) for name in plain} == plain
    openings = [(event.index, event.incident.number) for event in events if event.incident.is_open]
    closings = [(event.index, event.incident.number) for event in events if not event.incident.is_open]
    assert openings == [(plain["opened"], plain["number"]) for plain in expected]
    assert closings == [(plain["closed"], plain["number"]) for plain in expected if plain["closed"] is not None]
    assert [event.index for event in events] == sorted(event.index for event in events)


@given(surprises=SURPRISES, rules=RULES, end=st.integers(0, 60))
def test_a_saved_tracker_goes_on_as_if_it_had_not_been_saved(surprises, rules, end):
    whole, first = IncidentTracker(rules), IncidentTracker(rules)
    before, after = surprises[:end], surprises[end:]
    observe(first, before)
    resumed = IncidentTracker(rules)
    resumed.restore(json.loads(json.dumps(first.state())), len(before))
    resumed.observe(rows_of(after, len(before)), LEVEL, None, no_reasons)
    observe(whole, surprises)
    assert resumed.state() == whole.state()
    assert resumed.latest == whole.latest


def test_only_the_latest_64_incidents_are_stored():
    tracker = IncidentTracker(IncidentRules(gap=1))
    observe(tracker, np.tile([5.0, 0.5, 0.5], 100))
    assert tracker.n_opened == 100
    assert [incident.number for incident in tracker.latest] == list(range(36, 100))


@pytest.mark.parametrize(
    "change",
    [
        {"n_opened": -1},
        {"n_opened": 7},
        {"run": [5, 3, 1, 4, 0.5, 3.0]},
        {"run": None},
        {"run": [0, 2, 3, 0, 0.9, 5.0]},
        {"explained": float("inf")},
        {"latest": [[0, 1, 2, 2, 1, None, 1, 0.96875, 5.0, [[7, 0, 0.5, 1.0, True, 0.0, 0.0, 0.0]]]]},
        {"latest": [[0, 1, 2, 2, 1, None, 1, 0.96875, 5.0, [[0, 4, 0.5, 1.0, True, 0.0, 0.0, 0.0]]]]},
        {"latest": [[0, 2, 1, 1, 2, None, 2, 0.9, 4.0, []]]},
        {"latest": [[0, 1, 2, 9, 1, None, 1, 0.9, 4.0, []]]},
        {"latest": [[0, 1, 2, 1, 1, None, 1, float("nan"), 4.0, []]]},
        {"latest": [[0, 1, 2, 1, 1, None, 1, 0.9, 4.0, [[0, 0, 0.5, 1.0, True, 0.0, 0.0, 0.0, 3, 2]]]]},
        {"latest": [[0, 1, 2, 1, 1, None, 1, 0.9, 4.0, [[0, 0, 0.5, 1.0, True, 0.0, 0.0, 0.0]] * 6]]},
        {"latest": [[0, 1, 2, 2, 1, None, 1, 0.96875, 5.0, [[0, 0, 0.5, 1.0, True, 0.0, 1.0, 0.0]]]]},
        {"latest": [[0, 1, 2, 2, 1, None, 1, 0.96875, 5.0, [[0, 0, 0.5, 1.0, True, 0.0, -1e308, 1e308]]]]},
    ],
)
def test_a_damaged_state_is_refused(change):
    tracker = IncidentTracker(IncidentRules())
    observe(tracker, np.array([0.5, 5.0, 4.0, 0.5]))
    assert tracker.open is not None
    with pytest.raises(ValueError, match=r"must|reasons|match|does not exist"):
        IncidentTracker(IncidentRules()).restore(tracker.state() | change, 4, n_features=3, n_rows=2)


# -- rules ------------------------------------------------------------------------------------------------------------


def reason(value, median, feature=0, *, is_high=None):
    is_high = value > median if is_high is None else is_high
    return AlarmReason(feature, 0, 0.9, value, is_high, median, median - 1.0, median + 1.0)


@pytest.mark.parametrize(
    ("rules", "value", "counts"),
    [
        ({}, 5.0, True),
        ({"side": {"load": "high"}}, 30.0, True),
        ({"side": {"load": "high"}}, 5.0, False),
        ({"side": {0: "low"}}, 30.0, False),
        ({"side": {"load": "both"}}, 30.0, True),
        ({"side": {"other": "low"}}, 30.0, True),
        ({"ignore_within": {"load": 10.0}}, 30.0, False),
        ({"ignore_within": {"load": 9.9}}, 30.0, True),
        ({"ignore_within": {0: "50%"}}, 30.0, False),
        ({"ignore_within": {0: "49%"}}, 30.0, True),
    ],
)
def test_the_main_feature_decides_whether_an_alarm_counts(rules, value, counts):
    tracker = IncidentTracker(checked_rules(rules))
    tracker.observe(rows_of(np.array([6.0])), LEVEL, ["load", "other"], lambda _: (reason(value, 20.0),))
    assert (tracker.n_opened == 1) is counts


@pytest.mark.parametrize("rules", [{}, {"side": {0: "high"}}])
def test_an_incident_is_explained_when_it_opens_and_when_its_peak_has_grown(rules):
    """With rules about reasons, each alarm is explained, but the incident keeps the reasons of the others."""
    tracker, explained = IncidentTracker(IncidentRules(**rules)), []

    def explain(position):
        explained.append(position)
        return (reason(float(position), 0.0),)

    surprises = np.array([0.5, 3.2, 3.3, 3.4, 4.2, 4.5, 4.31, 6.0, 3.3])
    tracker.observe(rows_of(surprises), LEVEL, None, explain)
    assert explained == (list(range(1, 9)) if rules else [2, 5, 7])
    assert tracker.open.reasons[0].value == 7.0


# -- incidents of a detector ------------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)


def stream(n=4_000, at=3_000, length=30, shift=9.0):
    X = RNG.normal(size=(n, 3))
    X[at : at + length, 1] += shift
    return X


def test_a_burst_is_one_incident_that_names_the_feature_and_what_was_expected():
    detector = StreamDetector(3, window=1024, max_samples=128, n_trees=50)
    results = detector.process_many(stream())
    incident = next(incident for incident in detector.incidents if incident.first <= 3_000 <= incident.last)
    assert 3_000 <= incident.opened <= 3_003
    assert (incident.last <= 3_029, incident.closed) == (True, incident.last + 64)
    main = incident.reasons[0]
    assert (main.feature, main.is_high, main.lag) == (1, True, 0)
    assert main.low <= main.median <= main.high < 4.0 < main.value
    np.testing.assert_array_equal(
        np.flatnonzero(results.incident == incident.number), np.arange(incident.opened, incident.closed)
    )
    record = incident_as_json(incident, ["a", "b", "c"])
    assert record["explanation"][0]["text"].startswith("b = ")
    assert "high; expected -" in record["explanation"][0]["text"]
    json.dumps(record, allow_nan=False)


def test_the_threshold_and_the_rules_can_be_changed_without_losing_what_was_learned():
    X = stream()
    changed, strict = (StreamDetector(3, window=512, max_samples=64, n_trees=20, threshold=p) for p in (0.3, 0.001))
    changed.process_many(X[:2_000])
    strict.process_many(X[:2_000])
    changed.threshold, changed.rules = 0.001, IncidentRules(gap=100)
    assert (changed.threshold, changed.rules.gap, changed.parameters["threshold"]) == (0.001, 100, 0.001)
    ours, theirs = changed.process_many(X[2_000:]), strict.process_many(X[2_000:])
    for name in ("score", "is_anomaly", "threshold", "surprise"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    with pytest.raises(imondrian.InvalidInputError, match=r"but is 0\.9"):
        changed.threshold = 0.9
    with pytest.raises(imondrian.InvalidInputError, match="gap must be between 1"):
        changed.rules = {"gap": 0}
    assert (changed.threshold, changed.rules.gap) == (0.001, 100)
    changed.threshold = "preset"
    assert changed.threshold == 0.001


def test_incidents_and_changed_rules_survive_saving(tmp_path):
    X = stream()
    detector = StreamDetector(3, window=512, max_samples=64, n_trees=20)
    detector.process_many(X[:3_010])
    detector.rules = {"gap": 20, "side": {1: "high"}, "ignore_within": {1: "5%"}}
    detector.threshold = "surprise 2.5"
    assert detector.incidents[-1].is_open
    imondrian.save(detector, tmp_path / "detector.imf")
    resumed = imondrian.load(tmp_path / "detector.imf")
    assert (resumed.rules, resumed.threshold) == (detector.rules, "surprise 2.5")
    for ours, theirs in zip(resumed.process_many(X[3_010:]), detector.process_many(X[3_010:]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert resumed.incidents == detector.incidents
    assert resumed.events == detector.events


def test_events_are_those_of_the_last_call():
    detector = StreamDetector(3, window=512, max_samples=64, n_trees=20)
    detector.process_many(stream(length=1)[:3_001])
    assert [event.incident.is_open for event in detector.events][-1:] == [True]
    detector.process_many(RNG.normal(size=(1, 3)))
    assert detector.events == ()
    detector.process_many(np.zeros((64, 3)))
    assert [event.incident.is_open for event in detector.events] == [False]


def test_ordinary_rows_of_an_incident_do_not_copy_the_state(monkeypatch):
    """A copy takes longer than learning a row. Rows at which a step of the window ends need one."""
    detector, copies, copy = StreamDetector(3, window=512, max_samples=64, n_trees=20), [], StreamState.copy
    detector.process_many(stream(n=3_001, length=1))
    assert detector.incidents[-1].is_open
    monkeypatch.setattr(StreamState, "copy", lambda state: copies.append(state) or copy(state))
    results = [detector.process(x) for x in np.zeros((60, 3))]
    assert [result.incident for result in results] == [detector.n_incidents - 1] * 60
    assert len(copies) <= 1


def test_alarms_that_continue_an_incident_do_not_copy_the_state(monkeypatch):
    detector = StreamDetector(2, window=64, max_samples=32, n_trees=20, threshold="kmeans")
    blocks = StreamDetector(2, window=64, max_samples=32, n_trees=20, threshold="kmeans")
    X = np.random.default_rng(1).normal(size=(400, 2))
    detector.process_many(X[:200])
    assert detector.incidents[-1].is_open
    copies = []
    copy = StreamState.copy
    monkeypatch.setattr(StreamState, "copy", lambda state: copies.append(state) or copy(state))
    results = [detector.process(x) for x in X[200:]]
    assert sum(result.is_anomaly for result in results) > 50
    assert len(copies) < 40  # at the steps of the window, and when a higher peak is explained
    monkeypatch.undo()
    expected = blocks.process_many(X)
    assert [result.incident for result in results] == expected.incident[200:].tolist()
    assert [result.surprise for result in results] == expected.surprise[200:].tolist()
    assert detector.incidents == blocks.incidents


def test_a_side_keeps_alarms_on_the_other_side_out_of_incidents():
    X = stream(shift=-9.0)
    both, high = (
        StreamDetector(3, window=1024, max_samples=128, n_trees=50, rules={"side": side}) for side in ({}, {1: "high"})
    )
    np.testing.assert_array_equal(both.process_many(X).is_anomaly, high.process_many(X).is_anomaly)
    assert any(incident.first <= 3_000 <= incident.last for incident in both.incidents)
    assert not any(incident.first <= 3_010 <= incident.last for incident in high.incidents)


@pytest.mark.parametrize("names", [["a", "b"], [1, 0], [1, 2]])
@pytest.mark.parametrize("rule", [{"side": "high"}, {"ignore_within": 1e9}])
def test_a_rule_for_one_feature_does_not_apply_to_another(names, rule):
    """Names may be integers, which are also the indices of other features."""
    ((name, value),) = rule.items()
    tracker = IncidentTracker(IncidentRules(gap=1, **{name: {names[0]: value}}))
    for feature in (0, 1):
        low = reason(-9.0, 0.0, feature, is_high=False)
        rows = LabelledRows(2 * feature, np.array([True]), np.array([0.9]), np.array([9.0]))
        _, events = tracker.observe(rows, 3.0, names, lambda _, low=low: (low,))
        assert len(events) == feature


def test_skipped_rows_belong_to_the_open_incident_until_the_gap_is_over():
    detector = StreamDetector(3, window=512, max_samples=64, n_trees=20, on_error="skip", rules={"gap": 3})
    detector.process_many(stream(n=3_001, length=1))
    assert detector.incidents[-1].is_open
    number = detector.n_incidents - 1
    skipped = detector.process_many(np.full((4, 3), np.inf))
    assert skipped.incident.tolist() == [number, number, -1, -1]
    assert [detector.process([np.inf] * 3).incident for _ in range(2)] == [None, None]
    result = detector.process([0.0, 0.0, 0.0])
    assert (result.incident, detector.incidents[-1].closed) == (None, 3_003)


def test_with_a_shingle_the_reason_names_the_row():
    wave = np.round(np.sin(np.arange(3_000) / 5.0), 2)
    wave[2_500] = 6.0
    detector = StreamDetector(1, window=1024, max_samples=128, n_trees=50, shingle=4)
    detector.process_many(wave)
    incident = next(incident for incident in detector.incidents if incident.first <= 2_500 <= incident.last + 4)
    assert incident.reasons[0].value == 6.0
    assert incident.reasons[0].lag == incident.opened - 2_500 or incident.reasons[0].lag == incident.peak - 2_500


def test_a_category_is_explained_by_how_often_it_was_seen():
    rng = np.random.default_rng(0)
    rows = [
        {"country": c, "amount": a}
        for c, a in zip(rng.choice(["FR", "DE"], 1_500), rng.normal(size=1_500), strict=True)
    ]
    detector = StreamDetector(2, window=512, max_samples=64, n_trees=50, categorical=["country"])
    detector.process_many(rows)
    detector.process({"country": "KP", "amount": 0.0})
    incident = detector.incidents[-1]
    main = incident.reasons[0]
    assert (incident.last, main.feature, main.count, main.n_points) == (1_500, 0, 0, 256)
    text = incident_as_json(incident, ["country", "amount"], lambda _feature, _code: "KP")["explanation"][0]["text"]
    assert text.startswith("country = KP (never seen), ")


# -- features in rules ------------------------------------------------------------------------------------------------

SMALL = {"window": 64, "max_samples": 16, "n_trees": 4}
ROWS = RNG.normal(size=(20, 2))
NAMED = [{"load": a, "heat": b} for a, b in ROWS]
RULES_BY_FEATURE = [("side", "high"), ("ignore_within", 0.5)]


@pytest.mark.parametrize(("rule", "value"), RULES_BY_FEATURE)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("call", ["process", "process_many"])
@pytest.mark.parametrize(
    ("feature", "rows", "problem"),
    [
        ("load", ROWS, "but has 'load'; there are 2 features, and the rows have no names"),
        ("speed", NAMED, "but has 'speed'; there are 2 features, and the rows have load, heat"),
        (2, ROWS, "but has 2; there are 2 features"),
        (7, NAMED, "but has 7; there are 2 features"),
    ],
)
def test_a_rule_for_a_feature_that_the_rows_do_not_have_is_an_error(
    rule, value, on_error, call, feature, rows, problem
):
    detector = StreamDetector(2, **SMALL, on_error=on_error, rules={rule: {feature: value}})
    for _ in range(2):
        with pytest.raises(imondrian.InvalidInputError, match=f"^{rule} must have features of the rows, {problem}"):
            getattr(detector, call)(rows[0] if call == "process" else rows)
    assert (detector.n_seen, detector.feature_names) == (0, None)
    detector.rules = {rule: {0: value}}
    detector.process_many(rows)
    assert detector.n_seen == 20


@pytest.mark.parametrize(("rule", "value"), RULES_BY_FEATURE)
def test_rules_may_name_features_before_the_rows_do(rule, value):
    detector = StreamDetector(2, **SMALL, rules={rule: {"heat": value}})
    detector.process_many(NAMED)
    detector.process_many(ROWS)  # in the order of the names
    assert detector.n_seen == 40
    unnamed = StreamDetector(2, **SMALL)
    unnamed.process_many(ROWS)
    unnamed.rules = {rule: {"heat": value}}
    with pytest.raises(imondrian.InvalidInputError, match="the rows have no names"):
        unnamed.process(ROWS[0])
    unnamed.process(NAMED[0])
    assert unnamed.feature_names == ["load", "heat"]


@pytest.mark.parametrize(("rule", "value"), RULES_BY_FEATURE)
def test_rules_that_are_set_must_match_known_names(rule, value):
    detector = StreamDetector(2, **SMALL)
    detector.process_many(NAMED)
    with pytest.raises(imondrian.InvalidInputError, match=f"^{rule} must have features of the rows, but has 'speed'"):
        detector.rules = {rule: {"speed": value}}
    assert not detector.rules.need_reasons
    detector.rules = {rule: {"load": value, 1: value}}
    assert detector.rules.need_reasons


@pytest.mark.parametrize(("rule", "value"), RULES_BY_FEATURE)
@pytest.mark.parametrize(("categorical", "feature"), [([1], 1), (["heat"], "heat"), ([False, True], 1)])
def test_a_rule_for_a_category_is_refused(rule, value, categorical, feature):
    message = f"^{rule} must have features that are numbers, but has {feature!r}, which is a category"
    with pytest.raises(imondrian.InvalidInputError, match=message):
        StreamDetector(2, **SMALL, categorical=categorical, rules={rule: {feature: value}})
    detector = StreamDetector(2, **SMALL, categorical=categorical)
    with pytest.raises(imondrian.InvalidInputError, match=message):
        detector.rules = {rule: {feature: value}}
    detector.process_many(NAMED)
    with pytest.raises(imondrian.InvalidInputError, match=r"but has 'heat', which is a category"):
        detector.rules = {rule: {"heat": value}}
    detector.rules = {rule: {"load": value}}


@pytest.mark.parametrize(("rule", "value"), RULES_BY_FEATURE)
def test_a_rule_for_a_category_is_refused_when_its_name_is_known(rule, value):
    detector = StreamDetector(2, **SMALL, categorical=[1], rules={rule: {"heat": value}})
    with pytest.raises(imondrian.InvalidInputError, match=r"but has 'heat', which is a category"):
        detector.process_many(NAMED)
    assert detector.n_seen == 0
