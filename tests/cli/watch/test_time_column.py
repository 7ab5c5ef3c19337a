"""`imondrian watch --preset series`: the values of the time column are the times of the rows."""

import json
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import InvalidInputError, StreamDetector
from imondrian.cli.console import Console
from imondrian.cli.options import ConsoleOptions
from imondrian.cli.stream_words import time_facts
from imondrian.cli.watch.time_column import TimeState, WatchTimes, restored_times, stored_times, times_in_words
from imondrian.stream.series_views import TimeCounts
from imondrian.tables.row_seconds import TimeFormat

START = datetime(2024, 3, 1)  # noqa: DTZ001
SERIES = ("--preset", "series", "--window", "256", "--trees", "5")
QUIET = Console(ConsoleOptions(quiet=True))


def values_of(n_rows):
    """A day and night pattern with a row every half hour, and one value that is usual at noon only."""
    rng = np.random.default_rng(0)
    values = 10.0 + 5.0 * ((np.arange(n_rows) // 24) % 2) + rng.normal(0.0, 0.2, n_rows)
    values[390] = 15.0
    return values


def text_of(values, bad=()):
    times = [START + i * timedelta(minutes=30) for i in range(len(values))]
    cells = ["soon" if i in bad else f"{time:%Y-%m-%d %H:%M}" for i, time in enumerate(times)]
    rows = [f"{cell},web-1,{value:.6f}" for cell, value in zip(cells, values, strict=True)]
    return "\n".join(["ts,host,load", *rows]) + "\n"


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_the_scores_are_those_of_a_detector_that_is_given_the_times(shell):
    values = values_of(420)
    done = shell.run("watch", *SERIES, "--time", "ts", "--explain", stdin=text_of(values, bad={100, 101}))
    rows = lines_of(done.stdout)
    detector = StreamDetector(1, preset="series", window=256, n_trees=5)
    times = [None if i in (100, 101) else START + i * timedelta(minutes=30) for i in range(420)]
    results = detector.process_many([{"load": float(f"{value:.6f}")} for value in values], times)
    assert [row["anomaly_score"] for row in rows] == results.score.tolist()
    assert [row["is_anomaly"] for row in rows] == results.is_anomaly.tolist()
    assert rows[390]["is_anomaly"]
    assert rows[390]["explanation"].startswith("load = 15 (high; expected")
    assert rows[390]["explanation"].endswith("at this hour)")  # no share: there is only one value
    assert (
        "left out: ts (the timestamp column), host (not a number, but with --preset series all features must be"
        " numbers)" in done.stderr
    )
    assert "times: a row every 30 min, 2 unknown (the first: row 101, 'soon')\n" in done.stderr


def test_a_resumed_series_equals_one_that_was_never_interrupted(shell):
    text = text_of(values_of(420))
    header, *lines = text.splitlines(keepends=True)
    whole = shell.run("watch", *SERIES, "--model", "whole.imf", stdin=text)
    assert "times: column 'ts' (use --time to choose another)" in whole.stderr
    first = shell.run("watch", *SERIES, "--model", "parts.imf", stdin="".join([header, *lines[:200]]))
    rest = [lines[200].replace("2024", "soon"), *lines[201:]]  # the column is known, so it need not be recognised again
    second = shell.run("watch", "--model", "parts.imf", stdin="".join([header, *rest]))
    assert lines_of(first.stdout) == lines_of(whole.stdout)[:200]
    assert [row["anomaly_score"] for row in lines_of(second.stdout)][1:] == [
        row["anomaly_score"] for row in lines_of(whole.stdout)[201:]
    ]
    assert "a row every 30 min, 1 unknown" in second.stderr


def test_incidents_have_times_even_if_the_column_was_recognised(shell):
    done = shell.run("watch", *SERIES, "--incidents", stdin=text_of(values_of(420)))
    opened = [line for line in lines_of(done.stdout) if line["first_row"] == 391]
    assert opened[0]["first_time"] == "2024-03-09 03:00"
    assert "at this hour" in opened[0]["explanation"]


def test_without_a_column_of_dates_the_rows_are_equally_spaced(shell):
    for text, reason in (
        ("a\n1\n2\n", "no column is a date"),
        ("d,e,a\n2024-01-01,2024-01-02,1\n", "several columns are dates: d, e"),
    ):
        done = shell.run("watch", *SERIES, stdin=text)
        assert f"times: none, because {reason}; rows are taken to be equally spaced" in done.stderr
        assert "times: none; rows are taken to be equally spaced" in done.stderr


def test_one_time_in_another_unit_is_unknown_and_ends_nothing(shell):
    rows = [f"{(1714572300 + 300 * i) * (1000 if i == 20 else 1)},{i % 7}" for i in range(40)]
    text = "\n".join(["ts,load", *rows]) + "\n"
    for _ in range(2):
        done = shell.run("watch", *SERIES, "--time", "ts", "--model", "s.imf", stdin=text)
        assert len(done.stdout.splitlines()) == 40
        assert "1 unknown (the first: row" in done.stderr
    (shell.folder / "unit.csv").write_text(text)
    for command in (("plot", "series", "-o", "unit.png"), ("report", "-o", "unit.html")):
        shell.run(*command, *SERIES, "--time", "ts", "unit.csv")


def test_a_time_without_a_date_after_the_first_row_is_unknown(shell):
    text = "ts,v\n,1\n,2\n12:30,3\n2024-05-01 12:00,4\n"
    done = shell.run("watch", *SERIES, "--time", "ts", stdin=text)
    assert len(done.stdout.splitlines()) == 4
    assert "3 unknown (the first: row 1, missing)" in done.stderr
    (shell.folder / "tod.csv").write_text(text)
    assert "3 unknown" in shell.run("report", *SERIES, "--time", "ts", "tod.csv", "-o", "tod.html").stdout


def test_impossible_combinations_give_a_one_line_error(shell):
    for options, message in [
        (("--shingle", "4"), "so --shingle 4 is not possible: leave it out."),
        (("--categorical", "a,b"), "--preset series reads numbers only, so --categorical a,b is not possible."),
        (("--missing", "previous"), "With --preset series, --missing must be median or drop, but is previous."),
    ]:
        assert message in shell.fails("watch", *SERIES, *options, stdin="a\n1\n")
    assert "column 'b' is 'x' in the first row" in shell.fails("watch", *SERIES, "--features", "b", stdin="a,b\n1,x\n")
    message = shell.fails("watch", *SERIES, "-q", "--time", "t", stdin="t,a\n14:05,1\n")
    assert "Column 't' has times without a date, such as '14:05'." in message


# -- without a process ------------------------------------------------------------------------------------------------


def times_with(column="t", state=None):
    return WatchTimes(column, uses_times=True, state=state or TimeState(), console=QUIET)


VALUES = st.lists(
    st.sampled_from(["2024-01-01 10:00", "2024-02-03", "soon", "", None, 1.5e9, 1.5e12, "1e400"]), max_size=8
)


@given(values=VALUES, cut=st.integers(0, 8))
def test_times_do_not_depend_on_how_a_stream_is_divided(values, cut):
    whole, parts = times_with(), times_with()
    expected = whole.seconds(values, 0)
    first = parts.seconds(values[:cut], 0)
    later = times_with(state=restored_times(json.loads(json.dumps(stored_times(parts.state))), "x.imf"))
    np.testing.assert_array_equal(np.concatenate([first, later.seconds(values[cut:], cut)]), expected)
    assert parts.n_unknown + later.n_unknown == whole.n_unknown == np.isnan(expected).sum()


@given(value=st.recursive(st.none() | st.text() | st.integers(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)))
def test_a_damaged_state_is_refused(value):
    if value is not None:
        with pytest.raises(InvalidInputError, match="the stored format of times is invalid"):
            restored_times(value, "x.imf")
    damaged = {"column": "t", "format": [value, False]}
    with pytest.raises(InvalidInputError, match="the stored format of times is invalid"):
        restored_times(damaged, "x.imf")


def test_another_time_column_is_recognised_again():
    state = TimeState("t", TimeFormat("%Y-%m-%d"))
    assert times_with("t", state).state == state
    assert times_with("u", state).state == TimeState("u", None)
    assert times_with(None, state).state == state


def test_the_counts_of_a_run_are_told_in_words():
    before, now = TimeCounts(1, 1, 1, 300.0), TimeCounts(3, 2, 1, 301.0)
    assert time_facts(now, before) == "a row every 5.02 min, 2 late rows, 1 repeated time"
    assert time_facts(TimeCounts(0, 0, 2, float("nan"))) == "the usual step is not known, 2 holes"
    times = times_with()
    times.seconds(["2024-01-01", "x", "y"], 9)
    assert times_in_words(now, before, times).endswith("1 repeated time, 2 unknown (the first: row 11, 'x')")
