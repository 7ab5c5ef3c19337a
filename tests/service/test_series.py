"""The preset "series": points with times, what is expected of them, restarts, model files and explanations."""

import json
import math
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imondrian import StreamDetector
from imondrian.base.defaults import STREAM_PRESETS
from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.configuration import DEFAULTS, checked_configuration, new_detector
from imondrian.service.changes.expected_rows import N_ROWS_PER_SPREAD, ExpectedRow
from imondrian.service.changes.journal import (
    LABELLED_POINTS,
    POINTS,
    TIMED_POINTS,
    Entry,
    EntryApplier,
    entry_of_points,
)
from imondrian.service.changes.posted_rows import RowFormat
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.http.bodies import rows_of
from imondrian.service.limits import Limits, Retention
from imondrian.stream.row_times import as_seconds
from imondrian.stream.series_views import deviations
from tests.service.serving import SMALL, ThreadServer
from tests.service.test_categories import sender
from tests.service.test_uploads import put

FEATURES = ["load", "heat"]
SMALL_SERIES = {**SMALL, "max_samples": None, "preset": "series"}
LOAD = {"features": FEATURES, **SMALL_SERIES}
OFTEN = Retention(points_between_snapshots=100)
STEP = 600.0  # seconds
START = 1_700_000_000.0


def iso(seconds):
    return str(np.datetime64(round(seconds), "s"))


def series(n=400, seed=0):
    """Return points of two metrics, by feature name: load has a daily rhythm, heat has gaps, and some lack a time."""
    rng = np.random.default_rng(seed)
    points = []
    for i in range(n):
        seconds = START + STEP * (i + 1_000 * (i > n // 2)) - 4.0 * STEP * (rng.random() < 0.05)
        load = 10.0 * math.sin(seconds / 86_400.0 * 2.0 * math.pi) + rng.normal() + 40.0 * (rng.random() < 0.02)
        point = {"load": round(load, 3), "heat": None if rng.random() < 0.1 else round(rng.normal(), 3)}
        points.append(point if rng.random() < 0.1 else {**point, "time": iso(seconds)})
    return points


SERIES = series()
VALUES = np.array([[point[name] for name in FEATURES] for point in SERIES], float)
TIMES = [as_seconds(point.get("time")) for point in SERIES]


def plain_detector(**more):
    return StreamDetector(2, **SMALL_SERIES, **more)


def expected(detector, values, times):
    """Return what the service answers."""
    names = ("anomaly_score", "is_anomaly", "threshold", "index", "surprise", "incident")
    columns = zip(*(column.tolist() for column in detector.process_many(values, times)), strict=True)
    rows = [dict(zip(names, row, strict=True)) for row in columns]
    return [{**row, "incident": None if row["incident"] < 0 else row["incident"]} for row in rows]


@pytest.fixture
def send(shared_server):
    send_request = sender(shared_server, "load")
    assert send_request("PUT", "", LOAD)[0] == 201
    return send_request


# -- configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", STREAM_PRESETS)
def test_the_preset_decides_what_is_not_given(shared_server, preset):
    send = sender(shared_server, "load")
    status, found = send("PUT", "", {"features": ["x"], "preset": preset})
    values, configuration = STREAM_PRESETS[preset], found["configuration"]
    assert status == 201
    for name in ("window", "max_samples", "n_trees", "kind", "threshold", "scale"):
        assert configuration[name] == getattr(values, name)
    assert found["n_bytes"] == StreamDetector(1, preset=preset).n_bytes
    same = {"features": ["x"], "preset": preset, "window": values.window, "n_trees": "preset"}
    assert send("PUT", "", same)[0] == 200
    assert send("PUT", "", {**same, "window": 100})[0] == 409


def test_a_default_of_one_preset_is_not_that_of_another(shared_server):
    send = sender(shared_server, "load")
    assert send("PUT", "", {"features": ["x"]})[0] == 201
    assert send("PUT", "", {"features": ["x"], "preset": "series"})[0] == 409


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"categorical": ["heat"]},
            "With the preset 'series', all features must be numbers, but categorical has 'heat'.",
        ),
        ({"shingle": 2}, "With the preset 'series', shingle must be 1, but is 2."),
        ({"missing": "previous"}, "With the preset 'series', missing must be 'median' or 'raise', but is 'previous'."),
        (
            {"missing": "indicator"},
            "With the preset 'series', missing must be 'median' or 'raise', but is 'indicator'.",
        ),
        ({"time": "heat"}, "time must not be the name of a feature, but is 'heat'."),
        ({"time": "a\nb"}, "time must be a name of printable characters, but is 'a\\nb'."),
        ({"preset": "serie"}, "preset"),
        ({"window": "all"}, "window"),
    ],
)
def test_invalid_settings_of_a_series_are_refused(shared_server, more, message):
    status, found = sender(shared_server, "load")("PUT", "", {**LOAD, **more})
    assert status == 422
    assert message in found["detail"]


def test_a_series_that_is_too_large_is_refused_before_it_is_created():
    with pytest.raises(InvalidInputError, match="would need"):
        checked_configuration({"features": ["x"], "preset": "series", "window": 100_000, "n_trees": 1_000}, Limits())


# -- times ------------------------------------------------------------------------------------------------------------


def test_points_with_times_give_the_results_of_a_plain_detector(send):
    reference = plain_detector()
    first, second, third = (slice(0, 150), slice(150, 300), slice(300, 400))
    status, found = send("POST", "/points", {"points": SERIES[first]})
    assert (status, found["results"]) == (200, expected(reference, VALUES[first], TIMES[first]))
    seconds = [{**point, "time": time} for point, time in zip(SERIES[second], TIMES[second], strict=True)]
    lines = "\n".join(json.dumps(point).replace("NaN", "null") for point in seconds).encode()
    status, found = send("POST", "/points", lines, {"Content-Type": "application/x-ndjson"})
    assert (status, found["results"]) == (200, expected(reference, VALUES[second], TIMES[second]))
    lists = [list(point.values())[:2] for point in SERIES[third]]
    assert send("POST", "/points", {"points": lists})[1]["results"] == expected(reference, VALUES[third], None)
    scores = send("POST", "/scores", {"points": SERIES})[1]["anomaly_score"]
    assert scores == reference.score(VALUES, TIMES).tolist()
    found, counts = send("GET", "")[1], reference.time_counts
    assert found["times"] == counts._asdict()
    assert min(counts.n_late, counts.n_holes) > 0
    assert found["n_missing"] == reference.n_missing > 0


POSTED = st.lists(
    st.tuples(
        st.floats(-100.0, 100.0),
        st.one_of(st.none(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6)),
        st.booleans(),  # whether a request ends after the point
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None, max_examples=25)
@given(posted=POSTED)
def test_any_times_in_any_requests_give_the_results_of_a_plain_detector_and_of_a_replay(posted):
    configuration, _ = checked_configuration({"features": ["x"], **SMALL_SERIES}, Limits())
    row_format = RowFormat.of(configuration, Limits(), Retention())
    entries, points = [], []
    for value, time, is_last in [*posted[:-1], (*posted[-1][:2], True)]:
        points.append({"x": value} if time is None else {"x": value, "time": time})
        if is_last:
            body = json.dumps({"points": points}).encode()
            kind, content = entry_of_points(rows_of(body, "", row_format, 1_000))
            assert (kind == TIMED_POINTS) == any("time" in point for point in points)
            entries.append(Entry(len(entries) + 1, kind, content, None, 0.0))
            points = []
    applied = [row for rows in EntryApplier(new_detector(configuration)).apply(entries) for row in rows]
    one_by_one, replayed = EntryApplier(new_detector(configuration)), []
    for entry in entries:
        replayed += one_by_one.apply([entry])[0]
    assert repr(applied) == repr(replayed)  # also what was expected; NaN is equal to itself
    reference = new_detector(configuration)
    results = reference.process_many([[value] for value, _, _ in posted], [time for _, time, _ in posted])
    assert [row.score for row in applied] == results.score.tolist()
    assert repr(one_by_one.detector.time_counts) == repr(reference.time_counts)


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01", "", 1e13, -1e300, True, "x" * 100, 10**40])
def test_a_time_that_cannot_be_read_is_refused_with_its_row_and_value(send, time):
    points = [{"load": 1.0, "heat": 2.0, "time": 0}, {"load": 1.0, "heat": 2.0, "time": time}]
    for path in ("/points", "/scores", "/explanations"):
        status, found = send("POST", path, {"points": points})
        assert status == 422
        assert found["detail"] == (
            "'time' of point 1 must be a time in ISO 8601, such as 2026-01-31T12:30:00Z, or a number of seconds since"
            f" 1970, but is {json.dumps(time)}."
        )
    assert send("GET", "")[1]["n_seen"] == 0


@pytest.mark.parametrize("preset", STREAM_PRESETS)
def test_the_time_of_a_point_may_have_another_name(shared_server, preset):
    send = sender(shared_server, "load")
    send("PUT", "", {"features": ["x"], "preset": preset, "time": "ts"})
    points = [{"x": 1.0, "ts": "2026-01-31T12:30:00Z"}, {"x": 2.0}, {"x": 3.0, "ts": "2026-01-31T12:31:00Z"}]
    assert send("POST", "/points", {"points": points})[0] == 200
    assert send("GET", "/history")[1]["own_time"] == [point.get("ts") for point in points]
    status, found = send("POST", "/points", {"points": [{"x": 1.0, "time": "2026-01-31T12:32:00Z"}]})
    assert (status, found["detail"]) == (422, "Point 0 has an unknown feature 'time'.")
    assert send("GET", "")[1]["configuration"]["time"] == "ts"


def test_with_other_presets_a_time_is_only_shown(shared_server):
    send = sender(shared_server, "load")
    send("PUT", "", {"features": ["x"], **SMALL})
    points = [{"x": float(i % 7), "time": iso(i * 60.0)} for i in range(80)]
    results = send("POST", "/points", {"points": points})[1]["results"]
    reference = StreamDetector(1, **SMALL).process_many([[point["x"]] for point in points])
    assert [row["anomaly_score"] for row in results] == reference.score.tolist()
    assert send("GET", "")[1]["times"] is None
    assert send("GET", "/history")[1]["expected_low"] is None
    status, found = send("POST", "/points", {"points": [{"x": 1.0, "time": 60}]})
    assert (status, found["detail"][:46]) == (422, "'time' of point 0 must be a time in ISO 8601, ")


def test_the_client_sends_the_times_of_a_data_frame(shared_server):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"load": VALUES[:, 0], "ts": pandas.to_datetime(np.array(TIMES), unit="s")})
    with shared_server.client() as client:
        client.create("load", ["load"], **SMALL_SERIES, time="ts")
        found = [result["anomaly_score"] for result in client.process("load", frame)]
        scores = client.score("load", frame[:20])
    reference = StreamDetector(1, **SMALL_SERIES)
    assert found == reference.process_many(VALUES[:, :1], TIMES).score.tolist()
    assert scores == reference.score(VALUES[:20, :1], TIMES[:20]).tolist()


def test_seconds_are_shown_as_text(send):
    times = [0, 1_700_000_000.5, -1, 9e11, None]
    send("POST", "/points", {"points": [{"load": 1.0, "heat": 1.0, "time": time} for time in times]})
    shown = ["1970-01-01 00:00:00", "2023-11-14 22:13:20.500000", "1969-12-31 23:59:59", "900000000000.0", None]
    assert send("GET", "/history")[1]["own_time"] == shown


def test_a_repeated_request_with_another_time_is_another_request(send):
    body = {"points": [{"load": 1.0, "heat": 1.0, "time": 0}]}
    headers = {"Idempotency-Key": "k"}
    first = send("POST", "/points", body, headers)
    assert first[0] == 200
    assert send("POST", "/points", body, headers) == first
    assert send("POST", "/points", {"points": [{**body["points"][0], "time": 1}]}, headers)[0] == 422
    assert send("GET", "")[1]["n_seen"] == 1


def test_entries_without_times_are_replayed():
    applier = EntryApplier(new_detector({**DEFAULTS, **LOAD}))
    row_format = RowFormat(FEATURES, allows_gaps=True)  # like that of a detector that does not use times
    labelled = entry_of_points(rows_of(json.dumps({"points": SERIES}).encode(), "", row_format, 1_000))
    plain = (POINTS, VALUES.tobytes())
    assert labelled[0] == LABELLED_POINTS
    outcomes = applier.apply([Entry(1, *labelled, None, 0.0), Entry(2, *plain, None, 0.0)])
    results = plain_detector().process_many(np.vstack([VALUES, VALUES]))
    assert [row.score for rows in outcomes for row in rows] == results.score.tolist()


# -- restarts and model files -----------------------------------------------------------------------------------------


def everything(registry):
    """Return all that is shown of the detector."""
    with ThreadServer(create_app(registry)) as server:
        send = sender(server, "load")
        rows = [send("GET", f"/history/{index}") for index in (0, 200, 399)]
        return [send("GET", ""), send("GET", "/history"), send("GET", "/incidents"), *rows]


@pytest.mark.parametrize("is_clean", [True, False])
def test_everything_is_the_same_after_a_stop_or_a_kill(tmp_path, is_clean):
    registry = Registry(tmp_path / "live", retention=OFTEN)
    handle, _ = registry.create("load", LOAD)
    for first in range(0, len(SERIES), 10):
        body = json.dumps({"points": SERIES[first : first + 10]}).encode()
        rows = rows_of(body, "", handle.row_format, 100)
        handle.worker.submit(*entry_of_points(rows), len(rows.points)).result()
    before = everything(registry)
    if is_clean:
        registry.close()
    else:
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
        registry.close()
    folder = tmp_path / ("live" if is_clean else "killed")
    for _ in range(2):
        registry = Registry(folder, retention=OFTEN)
        assert registry.damage_reports == []
        assert everything(registry) == before
        registry.close()


def test_a_model_file_is_downloaded_and_restored(shared_registry, shared_server, send):
    send("POST", "/points", {"points": SERIES[:300]})
    content = send("GET", "/model")[1]
    assert put(shared_server, "copy", content)[0] == 201
    copy = sender(shared_server, "copy")
    assert copy("GET", "")[1]["times"] == send("GET", "")[1]["times"]
    assert copy("GET", "")[1]["configuration"] == send("GET", "")[1]["configuration"]
    later = {"points": SERIES[300:]}
    assert copy("POST", "/points", later) == send("POST", "/points", later)
    assert put(shared_server, "load", content)[0] == 200
    assert send("POST", "/points", later)[1]["results"] == expected(from_first(300), VALUES[300:], TIMES[300:])


def from_first(n):
    detector = plain_detector()
    detector.process_many(VALUES[:n], TIMES[:n])
    return detector


def test_a_series_with_very_many_features_is_downloaded_and_restored(shared_server):
    send, copy = sender(shared_server, "wide"), sender(shared_server, "copy")
    wide = {"features": [f"feature {j}" for j in range(1_000)], "preset": "series", "window": 16, "n_trees": 2}
    assert send("PUT", "", wide)[0] == 201
    rows = np.random.default_rng(0).normal(size=(30, 1_000)).tolist()
    assert send("POST", "/points", {"points": rows})[0] == 200
    assert put(shared_server, "copy", send("GET", "/model")[1])[0] == 201
    assert copy("POST", "/points", {"points": rows}) == send("POST", "/points", {"points": rows})
    assert len(copy("GET", "/history/31")[1]["explanation"]) == 1_000


def test_a_model_with_another_preset_is_refused(shared_server, send):
    other = sender(shared_server, "other")
    other("PUT", "", {"features": FEATURES, **SMALL, "max_samples": None})
    other("POST", "/points", {"points": [[1.0, 2.0]]})
    status, found = put(shared_server, "load", other("GET", "/model")[1])
    assert status == 422
    assert "preset is 'practice', not 'series'" in str(found)


# -- what is expected -------------------------------------------------------------------------------------------------


def test_the_expected_range_is_that_of_the_detector_when_the_row_arrived(send):
    for point in SERIES:
        send("POST", "/points", {"points": [point]})
    found, detector = send("GET", "/history")[1], plain_detector()
    for i, (values, time) in enumerate(zip(VALUES, TIMES, strict=True)):
        if i % N_ROWS_PER_SPREAD == 0 and i > 0:
            low, high = detector.expected_range(time)
            assert found["expected_low"][i] == low.tolist()
            assert found["expected_high"][i] == high.tolist()
        if i < N_ROWS_PER_SPREAD:
            assert found["expected_low"][i] == found["expected_high"][i] == [None, None]
        detector.process(values, time)


def test_a_stored_row_is_explained_by_what_was_usual_at_its_time(shared_registry, send):
    send("POST", "/points", {"points": SERIES})
    history = shared_registry.get("load").worker.history.rows()
    points = shared_registry.get("load").worker._state.applier.detector.forest.points()
    for row in history[-SMALL["window"] :]:
        usual = ExpectedRow.from_bytes(row.expected).usual
        assert deviations(np.array(row.point), usual).tolist() in points.tolist()  # to the last bit
    for index in (399, 395, 10):  # in the window, and no longer in it
        status, found = send("GET", f"/history/{index}")
        assert status == 200
        shares = [reason["share"] for reason in found["explanation"]]
        assert shares == sorted(shares, reverse=True)
        for reason in found["explanation"]:
            assert reason["value"] == SERIES[index][reason["feature"]]
            assert reason["view"] in ("hour", "level")
            assert ("at this hour" in reason["text"]) == (reason["view"] == "hour")
    complete = [i for i, point in enumerate(SERIES) if None not in point.values()][-1]
    found = send("GET", f"/history/{complete}")[1]
    assert sum(abs(reason["part"]) for reason in found["explanation"]) == pytest.approx(found["anomaly_score"])


@pytest.mark.parametrize("learn_anomalies", [True, False])
@pytest.mark.parametrize("n_at_once", [1, 7, 400])
def test_what_was_usual_is_known_even_if_anomalies_are_not_learned(learn_anomalies, n_at_once):
    configuration, _ = checked_configuration({**LOAD, "learn_anomalies": learn_anomalies}, Limits())
    applier, reference = EntryApplier(new_detector(configuration)), new_detector(configuration)
    row_format, rows = RowFormat.of(configuration, Limits(), Retention()), []
    for first in range(0, len(SERIES), n_at_once):
        body = json.dumps({"points": SERIES[first : first + n_at_once]}).encode()
        entry = Entry(1, *entry_of_points(rows_of(body, "", row_format, 1_000)), None, 0.0)
        rows += applier.apply([entry])[0]
    for row, values, time in zip(rows, VALUES, TIMES, strict=True):
        point = deviations(values, ExpectedRow.from_bytes(row.expected).usual)
        assert point.tobytes() == reference.next_point(values, time).tobytes()
        assert reference.process(values, time).score == row.score
    assert sum(row.is_anomaly for row in rows) > 5


def test_the_reason_is_the_hour_if_the_value_is_usual_at_other_hours(shared_server):
    send = sender(shared_server, "load")
    send("PUT", "", {"features": ["load"], "preset": "series", "warm_up": 100})
    hours = np.arange(24 * 40)
    noise = np.random.default_rng(1).normal(scale=0.5, size=hours.size)
    load = np.where(hours % 24 < 12, 10.0, 90.0) + noise
    wrong = 24 * 39 + 3
    load[wrong] = 90.0
    points = [{"load": float(value), "time": iso(3_600.0 * hour)} for value, hour in zip(load, hours, strict=True)]
    send("POST", "/points", {"points": points})
    reason = send("GET", f"/history/{wrong}")[1]["explanation"][0]
    assert (reason["view"], reason["side"], reason["value"]) == ("hour", "high", 90.0)
    assert 5.0 < reason["expected"][0] < 15.0
    assert reason["expected"][1] < 90.0
    history = send("GET", "/history")[1]
    low, high = np.ravel(history["expected_low"][500:]), np.ravel(history["expected_high"][500:])
    inside = (low.astype(float) <= load[500:]) & (load[500:] <= high.astype(float))
    assert 0.7 < np.mean(inside) < 0.99
    assert not inside[wrong - 500]
    incident = next(each for each in send("GET", "/incidents")[1]["incidents"] if each["peak"]["index"] == wrong)
    assert incident["explanation"][0]["view"] == "hour"
    assert incident["text"].startswith("load = 90 (high; expected ")
    assert "at this hour" in incident["text"]


def test_incidents_in_a_large_request_have_the_times_of_their_rows(shared_server):
    send = sender(shared_server, "load")
    send("PUT", "", {"features": ["load"], **SMALL_SERIES})
    values = np.random.default_rng(2).normal(size=3_000)
    values[[500, 501, 502, 2_900, 2_901, 2_902]] += 50.0  # labels are stored for the latest 2,000 rows only
    points = [{"load": value, "time": START + STEP * i} for i, value in enumerate(values.tolist())]
    send("POST", "/points", {"points": points})
    incidents = send("GET", "/incidents")[1]["incidents"]
    firsts = {incident["first"]["index"]: incident["first"]["own_time"] for incident in incidents}
    assert min(firsts) < 900  # not one of the rows with labels
    assert max(firsts) > 1_100
    assert firsts == {i: iso(START + STEP * i).replace("T", " ") for i in firsts}


def test_points_are_explained_at_their_time(send):
    send("POST", "/points", {"points": SERIES})
    reference = from_first(len(SERIES))
    point = {"load": 35.0, "heat": 0.1, "time": iso(TIMES[0] + 10_000.0 * STEP)}
    found = send("POST", "/explanations", {"points": [point]})[1]["explanations"][0]
    assert found["anomaly_score"] == reference.score([[35.0, 0.1]], [point["time"]])[0]
    parts = reference.explain([35.0, 0.1], point["time"])
    load = next(reason for reason in found["explanation"] if reason["feature"] == "load")
    assert abs(load["part"]) == pytest.approx(sum(abs(parts[0, view]) for view in ("hour", "level")))


def test_rows_of_a_series_cannot_be_forgotten(send):
    send("POST", "/points", {"points": SERIES[:10]})
    status, found = send("DELETE", "/points", {"points": SERIES[:1]})
    assert (status, found["detail"]) == (
        422,
        "Single rows of a series cannot be forgotten: later points depend on them.",
    )


def test_the_metrics_count_what_was_noticed_about_the_times(shared_server, send):
    send("POST", "/points", {"points": SERIES})
    counts = from_first(len(SERIES)).time_counts
    lines = shared_server.request("GET", "/metrics")[2].decode().splitlines()
    for name, value in [
        ("late_points_total", counts.n_late),
        ("repeated_times_total", counts.n_repeated),
        ("holes_total", counts.n_holes),
        ("step_seconds", counts.step),
    ]:
        assert f'imondrian_{name}{{detector="load"}} {value}' in lines
