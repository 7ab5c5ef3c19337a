"""`imondrian watch`: incidents open and close the same however the stream is cut, stopped and resumed."""

import json
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import imondrian
from imondrian import InvalidInputError
from imondrian.cli.detector_settings import AlarmSettings
from imondrian.cli.options import AlarmOptions
from imondrian.cli.watch.incident_events import IncidentState, restored_incidents, stored_incidents
from imondrian.cli.watch.time_column import as_time, is_storable
from tests.cli.conftest import TIMEOUT, Shell

FOREST = ("--window", "256", "--trees", "30", "--samples", "64", "--time", "at")
SETTINGS = (*FOREST, "--gap", "10", "--threshold", "0.005")
ANOMALIES = {  # by row, counted from 0
    150: {"country": "KP"},
    155: {"country": "SY"},
    300: {"b": 40.0},
    301: {"b": 40.0},
    310: {"b": 40.0},
    440: {"c": -400.0},
    446: {"c": -400.0},
}
N_ROWS = 500


def rows_of_stream():
    rng = np.random.default_rng(3)
    numbers, countries = rng.normal(size=(N_ROWS, 2)).round(4), rng.choice(["DE", "FR", "IT"], N_ROWS)
    rows = [
        {"at": f"t{i}", "country": str(country), "b": float(b), "c": float(c)}
        for i, (country, (b, c)) in enumerate(zip(countries, numbers, strict=True))
    ]
    for i, values in ANOMALIES.items():
        rows[i] |= values
    return rows


LINES = [f"{json.dumps(row)}\n" for row in rows_of_stream()]
TEXT = "".join(LINES)


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The incidents and the scored rows of the stream in one run."""
    shell = Shell(tmp_path_factory.mktemp("whole"))
    incidents = shell.run("watch", "--incidents", "--scored", "scored.ndjson", "-q", *SETTINGS, stdin=TEXT).stdout
    return incidents, shell.text("scored.ndjson")


def test_incidents_name_rows_times_and_reasons(whole):
    incidents, scored = map(lines_of, whole)
    assert [(line["kind"], line["event"], line["incident"]) for line in incidents] == [
        ("anomalies", event, number) for number in range(3) for event in ("opened", "closed")
    ]
    closed = [line for line in incidents if line["event"] == "closed"]
    assert [(line["first_row"], line["last_row"], line["closed_row"]) for line in closed] == [
        (151, 156, 166),
        (301, 311, 321),
        (441, 447, 457),
    ]
    assert [(line["first_time"], line["last_time"], line["closed_time"]) for line in closed] == [
        ("t150", "t155", "t165"),
        ("t300", "t310", "t320"),
        ("t440", "t446", "t456"),
    ]
    assert all(line["closed_time"] is None for line in incidents if line["event"] == "opened")
    starts = ("country = KP (never seen), ", "b = 40 (high; expected ", "c = -400 (low; expected ")
    for line, start in zip(closed, starts, strict=True):
        assert line["explanation"].startswith(start)
        members = [row for row in scored if line["first_row"] <= row["row"] <= line["last_row"] and row["is_anomaly"]]
        peak = max(members, key=lambda row: row["surprise"])
        assert line["n_alarms"] == len(members)
        assert line["peak"] == {
            "row": peak["row"],
            "time": peak["at"],
            "anomaly_score": peak["anomaly_score"],
            "surprise": peak["surprise"],
        }


def test_the_scored_rows_are_those_of_a_run_without_incidents(shell, whole):
    done = shell.run("watch", *SETTINGS, stdin=TEXT)
    assert done.stdout == whole[1]
    assert "500 rows, 8 anomalies, 3 incidents\n" in done.stderr
    open_rows = {row["row"]: row["incident"] for row in lines_of(done.stdout) if row["incident"] is not None}
    expected = {}
    for line in lines_of(whole[0]):
        if line["event"] == "closed":
            expected |= dict.fromkeys(range(line["opened_row"], line["closed_row"]), line["incident"])
    assert open_rows == expected
    again = shell.run("watch", *SETTINGS, stdin=done.stdout).stdout  # the output can be watched again
    assert again == done.stdout


@settings(max_examples=4)
@given(cuts=st.lists(st.integers(1, len(TEXT) - 1), min_size=1, max_size=5).map(sorted), explain=st.booleans())
def test_the_incidents_do_not_depend_on_how_the_input_is_cut(tmp_path_factory, whole, cuts, explain):
    shell = Shell(tmp_path_factory.mktemp("cut"))
    options = ["--incidents", "--scored", "s.ndjson", *(["--explain"] if explain else [])]
    process = shell.start("watch", "-q", *options, *SETTINGS)
    for first, end in zip([0, *cuts], [*cuts, len(TEXT)], strict=True):
        process.stdin.write(TEXT[first:end].encode())
        process.stdin.flush()
    output, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (0, b"")
    assert output.decode() == whole[0]
    scored = [{k: v for k, v in row.items() if k != "explanation"} for row in lines_of(shell.text("s.ndjson"))]
    assert scored == lines_of(whole[1])


@pytest.mark.parametrize("n_first", [151, 154, 305, 448])  # within an incident
def test_a_stream_resumed_within_an_incident_continues_it_under_the_same_number(shell, whole, n_first):
    options = ("--incidents", "--scored", "s.ndjson", "--model", "state.imf", *SETTINGS)
    first = shell.run("watch", *options, stdin="".join(LINES[:n_first]))
    number = max(line["incident"] for line in lines_of(first.stdout))
    opened = next(line for line in lines_of(whole[0]) if line["incident"] == number)["opened_row"]
    assert f"; incident {number} has been open since row {opened}; saved to state.imf\n" in first.stderr
    second = shell.run("watch", *options, stdin="".join(LINES[n_first:]))
    assert first.stdout + second.stdout == whole[0]
    assert shell.text("s.ndjson") == whole[1]
    assert "from now on" not in second.stderr


@pytest.mark.parametrize("n_first", [160, 166, 167])  # before, just after and later than the row that closes it
def test_the_time_of_a_closing_is_known_if_its_row_is_unusable(shell, n_first):
    unusable = [f"{json.dumps({**json.loads(line), 'b': 'broken'})}\n" for line in LINES[164:168]]
    lines, options = [*LINES[:164], *unusable, *LINES[168:200]], ("--incidents", "-q", *SETTINGS)
    expected = shell.run("watch", *options, stdin="".join(lines)).stdout
    closed = lines_of(expected)[-1]
    assert (closed["event"], closed["closed_row"], closed["closed_time"]) == ("closed", 166, "t165")
    parts = [
        shell.run("watch", *options, "--model", "s.imf", stdin="".join(part)).stdout
        for part in (lines[:n_first], lines[n_first:])
    ]
    assert "".join(parts) == expected


def test_a_stream_resumed_within_a_point_of_several_rows_still_knows_its_categories(shell):
    options = ("--incidents", "-q", "--shingle", "3", "--min-points", "2", *SETTINGS)
    opened = shell.run("watch", *options, stdin=TEXT).stdout.splitlines(keepends=True)[0]
    assert "country 1 row ago = KP (never seen), " in json.loads(opened)["explanation"]
    n_first = json.loads(opened)["opened_row"] - 1  # the odd row is in the first run, the row explained in the second
    for rows, expected in ((LINES[:n_first], ""), (LINES[n_first : n_first + 1], opened)):
        assert shell.run("watch", *options, "--model", "state.imf", stdin="".join(rows)).stdout == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_incident_leaves_it_open_in_the_model_file(shell, whole, number):
    options = ("--incidents", "--model", "state.imf", *SETTINGS)
    process = shell.start("watch", *options)
    process.stdin.write("".join(LINES[:305]).encode())
    process.stdin.flush()
    lines = [process.stdout.readline().decode() for _ in range(3)]  # the third one is the opening of incident 1
    process.send_signal(number)
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, rest) == (0, b"")
    assert b"305 rows" in errors
    assert b"incident 1 has been open since row 301" in errors
    assert imondrian.load(shell.folder / "state.imf").incidents[-1].is_open
    more = shell.run("watch", *options, "-q", stdin="".join(LINES[305:])).stdout
    assert "".join(lines) + more == whole[0]


def test_incidents_are_flushed_immediately(shell):
    process = shell.start("watch", "--incidents", "-q", *SETTINGS)
    process.stdin.write("".join(LINES[:151]).encode())
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["event"] == "opened"  # while the stream waits for more
    process.stdin.close()
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()
    process.stderr.close()


def test_unusable_rows_are_reported_and_counted(shell):
    broken = "".join(f"oops {i}\n" for i in range(12))
    done = shell.run("watch", "--incidents", "-q", *SETTINGS, stdin=LINES[0] + broken)
    assert done.stdout == ""
    starts = [line.partition(" is unusable: ")[0] for line in done.stderr.splitlines()]
    assert starts == [f"imondrian: row {i}" for i in range(2, 12)]
    done = shell.run("watch", "--incidents", "--scored", "s.ndjson", *SETTINGS, stdin=LINES[0] + broken)
    assert "13 rows, 0 anomalies, 0 incidents, 12 unusable rows\n" in done.stderr
    assert "is unusable" not in done.stderr
    assert sum("error" in row for row in lines_of(shell.text("s.ndjson"))) == 12


# -- settings of a resumed detector -----------------------------------------------------------------------------------


def test_the_settings_of_a_resumed_detector_can_be_changed(shell):
    options = ("--model", "state.imf", *FOREST)
    shell.run("watch", *options, "--side", "b=low", stdin="".join(LINES[:350]))
    before = imondrian.load(shell.folder / "state.imf")
    assert (before.threshold, before.rules.gap) == (0.001, 64)
    assert [incident.first for incident in before.incidents] == [150]  # not the one in which b was high
    changes = ["--threshold", "top 5%", "--gap", "7", "--min-points", "2", "--cooldown", "3"]
    changes += ["--side", "c=high", "--ignore-within", "b=10%", "--ignore-within", "c=0.5"]
    done = shell.run("watch", *options, *changes, stdin="".join(LINES[350:]))
    for change in (
        "--threshold top 5% from now on (before: 0.001).",
        "--gap 7 from now on (before: 64).",
        "--min-points 2 from now on (before: 1).",
        "--cooldown 3 from now on (before: 0).",
        "--side c=high from now on (before: both).",
        "--ignore-within b=10% from now on (before: none).",
        "--ignore-within c=0.5 from now on (before: none).",
    ):
        assert f"state.imf: {change}\n" in done.stderr
    assert "--side b" not in done.stderr
    detector = imondrian.load(shell.folder / "state.imf")
    assert detector.n_seen == N_ROWS
    assert detector.threshold == "top 5%"
    assert detector.rules == imondrian.alarms.incidents.IncidentRules(
        7, 2, 3, {"b": "low", "c": "high"}, {"b": "10%", "c": 0.5}
    )
    assert [row["anomaly_score"] for row in lines_of(done.stdout)] == [
        result.score for result in map(before.process, [row_values(line) for line in LINES[350:]])
    ]  # what it has learned is not lost
    again = shell.run("watch", *options, *changes, stdin=LINES[0]).stderr
    assert "from now on" not in again


def row_values(line):
    return {name: value for name, value in json.loads(line).items() if name != "at"}


def test_other_options_of_a_resumed_detector_cannot_be_changed(shell):
    shell.run("watch", "--model", "state.imf", *SETTINGS, stdin="".join(LINES[:20]))
    content = (shell.folder / "state.imf").read_bytes()
    for option in ("--window", "--shingle"):
        message = shell.fails("watch", "-q", "--model", "state.imf", option, "77", "--gap", "3", stdin=LINES[0])
        assert f"{option} 77 is not possible" in message
    message = shell.fails("watch", "-q", "--model", "state.imf", "--side", "country=high", stdin=LINES[0])
    assert message == "imondrian: --side: the feature 'country' is a category, not a number.\n"
    message = shell.fails("watch", "-q", "--model", "state.imf", "--ignore-within", "z=1", stdin=LINES[0])
    assert message == "imondrian: --ignore-within: there is no feature 'z' among country, b, c.\n"
    assert (shell.folder / "state.imf").read_bytes() == content


HUGE = "9" * 30
ODD_NUMBERS = ["0_1", "\u0660", "\uff10.\uff11", "1e999", "-0.1"]  # all but the last are numbers for `float`
HOSTILE_RULES = [
    ({"side": ("b",)}, "--side must be FEATURE=VALUE, but is 'b'"),
    ({"side": ("=high",)}, "--side must be FEATURE=VALUE"),
    ({"side": ("b=up",)}, "side must be one of high, low, both, but is 'up'"),
    ({"side": ("b=low", "b=high")}, "--side is given twice for the feature 'b'"),
    ({"ignore_within": ("b=nan",)}, "--ignore-within 'b=nan': "),
    ({"ignore_within": ("b=inf%",)}, "--ignore-within 'b=inf%': "),
    ({"ignore_within": ("b=1\n2",)}, "--ignore-within 'b=1\\\\n2': "),
    *[({"ignore_within": (f"b={x}",)}, f"--ignore-within 'b={x}': .* but is '{x}'") for x in ODD_NUMBERS],
    *[({"ignore_within": (f"b={x}%",)}, f"--ignore-within 'b={x}%': .* but is '{x}%'") for x in ODD_NUMBERS],
    ({"gap": int(HUGE)}, "gap must be"),
    ({"threshold": "0"}, "--threshold must be"),
    *[({"threshold": x}, f"--threshold must be 'auto', .*'kmeans', .*'score 0.6', but is '{x}'") for x in ODD_NUMBERS],
    ({"threshold": "top 5"}, "--threshold must be"),
    ({"threshold": "nan"}, "--threshold must be"),
]


@pytest.mark.parametrize(("options", "message"), HOSTILE_RULES)
def test_hostile_settings_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        AlarmSettings.of(AlarmOptions(**options))


def test_wrong_options_give_a_one_line_error(shell):
    for options, message in (
        (["--side", "b=up\n"], "side must be one of high, low, both, but is 'up'"),
        (["--gap", HUGE], "gap must be"),
        (["--scored", "s.ndjson"], "--scored needs --incidents"),
        (["--incidents", "--scored", "data.csv"], "is also the input or the model"),
        (["--silence", "10"], "--silence must be a number above 0 followed by s, m, h or d"),
        (["--exec", "no-such-program-here"], "there is no program 'no-such-program-here'"),
        (["--side", "z=low"], "there is no feature 'z'"),
    ):
        assert message in shell.fails("watch", "data.csv", "-q", *options), options
    done = shell.run("watch", "-q", "--side", "a=b=low", stdin="a=b\n1\n")  # a name with the sign
    assert len(done.stdout.splitlines()) == 1


NAMES = st.text(min_size=1, max_size=5)
VALUES = st.one_of(st.text(max_size=8), st.floats().map(str), st.floats().map(lambda x: f"{x}%"))


@given(name=NAMES, value=VALUES, rule=st.sampled_from(["side", "ignore_within"]))
def test_any_rule_for_a_feature_is_accepted_or_refused_with_its_option(name, value, rule):
    with raised_only(f"--{rule.replace('_', '-')} "):
        check_that_rules_are_applied(AlarmSettings.of(AlarmOptions(**{rule: (f"{name}={value}",)})))


@contextmanager
def raised_only(start):
    """Allow an InvalidInputError whose message has this start."""
    try:
        yield
    except InvalidInputError as error:
        if not str(error).startswith(start):
            raise AssertionError(str(error)) from error


def check_that_rules_are_applied(parsed):
    detector = imondrian.StreamDetector(1, n_trees=1, window=8)
    parsed.apply(detector)
    assert detector.rules == imondrian.alarms.incidents.checked_rules(parsed.rules)
    assert AlarmSettings.of(AlarmOptions()).apply(detector) == []


# -- what the model file stores ---------------------------------------------------------------------------------------

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: (
        st.lists(values, max_size=3) | st.fixed_dictionaries(dict.fromkeys(("times", "texts", "earlier"), values))
    ),
    max_leaves=8,
)
TIMES = st.dictionaries(st.integers(0, 2**53), JSON_VALUES.map(as_time), max_size=3)
TEXTS = st.dictionaries(
    st.tuples(st.integers(0, 9), st.floats(0.0, 2.0**53)), st.text(max_size=9).map(as_time), max_size=3
)


@given(value=JSON_VALUES)
def test_damaged_values_in_a_model_file_are_refused(value):
    with raised_only("m.imf: "):
        state = restored_incidents(value, "m.imf")
        assert restored_incidents(stored_incidents(state), "m.imf") == state


ROWS = st.lists(st.dictionaries(st.integers(0, 9), st.text(max_size=9).map(as_time), max_size=3), max_size=3)


@given(times=TIMES, texts=TEXTS, earlier=ROWS)
def test_times_and_texts_survive_a_model_file(times, texts, earlier):
    state = IncidentState(times, texts, earlier)
    assert restored_incidents(json.loads(json.dumps(stored_incidents(state), allow_nan=False)), "m.imf") == state


@given(value=JSON_VALUES | st.text(min_size=150, max_size=400))
def test_every_value_of_the_time_column_can_be_written(value):
    time = as_time(value)
    assert is_storable(time)
    assert json.loads(json.dumps(time, allow_nan=False)) == time
