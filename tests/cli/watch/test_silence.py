"""`imondrian watch --silence`: no input for too long is an incident, which ends with the next row."""

import json
import os
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian import InvalidInputError
from imondrian.cli.watch.silence import Silence, SilenceState, parse_duration, restored_silence
from imondrian.tables.lines import Lines, Pipe
from tests.cli.conftest import TIMEOUT

SETTINGS = ("--window", "64", "--trees", "5", "--incidents", "--time", "at", "--silence")


class Watched:
    """A process whose input stops; its lines are awaited for a bounded time."""

    def __init__(self, shell, *arguments):
        self.process = shell.start("watch", *SETTINGS, *arguments)
        self._limit = threading.Timer(TIMEOUT, self.process.kill)
        self._limit.start()

    def write(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def line(self):
        return json.loads(self.process.stdout.readline())

    def end(self):
        """End the process, which must have no more output; return its standard error."""
        self.process.send_signal(signal.SIGTERM)
        rest, errors = self.process.communicate(timeout=TIMEOUT)
        self._limit.cancel()
        assert (self.process.returncode, rest) == (0, b"")
        return errors.decode()


def kind_event_number(line):
    return line["kind"], line["event"], line["incident"]


def test_a_pipe_that_stops_opens_an_incident_that_ends_with_the_next_row(shell):
    command = ("--exec", "sh -c 'cat >> got.ndjson'")
    watched = Watched(shell, "0.5s", *command)
    watched.write("at,a\nmon,1\ntue,2\n")
    lines = []
    first = watched.line()
    if first["last_row"] is None:  # the silence may have begun before the first row was read
        lines = [first, watched.line()]
        first = watched.line()
    number = first["incident"]
    assert kind_event_number(first) == ("silence", "opened", number)
    assert (first["last_row"], first["last_time"], first["next_row"]) == (2, "tue", None)
    assert first["seconds"] >= 0.5
    watched.write("\n\n  \nwed,")  # neither blank lines nor a part of a line are a row
    time.sleep(0.7)
    watched.write("3\n")
    second = watched.line()
    assert kind_event_number(second) == ("silence", "closed", number)
    assert (second["last_row"], second["next_row"], second["since"]) == (2, 3, first["since"])
    assert second["seconds"] >= first["seconds"]
    third = watched.line()
    assert kind_event_number(third) == ("silence", "opened", number + 1)
    assert (third["last_row"], third["last_time"]) == (3, "wed")
    errors = watched.end()
    assert f"3 rows, 0 anomalies, 0 incidents, {number + 2} silences, 0 of " in errors
    assert f"; silence {number + 1} has not ended\n" in errors
    assert list(map(json.loads, shell.text("got.ndjson").splitlines())) == [*lines, first, second, third]


def test_a_followed_file_that_stops_growing_is_silent_until_a_later_run(shell):
    log = shell.folder / "log.csv"
    log.write_text("at,a\n1,1\n2,2\n")
    options = ("--follow", "log.csv", "--model", "state.imf")
    watched = Watched(shell, "1s", *options)
    opened = watched.line()
    assert (opened["last_row"], opened["last_time"]) == (2, "2")
    assert "silence 0 has not ended; saved to state.imf" in watched.end()
    watched = Watched(shell, "1s", *options)
    time.sleep(1.5)  # the silence goes on: it does not open again
    with log.open("a") as file:
        file.write("oops\n")  # an unusable row is input, too
    closed = watched.line()
    assert kind_event_number(closed) == ("silence", "closed", 0)
    assert (closed["last_row"], closed["last_time"], closed["next_row"]) == (2, "2", 3)
    assert closed["since"] == opened["since"]
    assert closed["seconds"] >= 1.0
    again = watched.line()
    assert kind_event_number(again) == ("silence", "opened", 1)
    assert "row 3 is unusable" in watched.end()


def test_the_end_of_the_input_is_not_a_silence(shell):
    done = shell.run("watch", *SETTINGS, "0.001s", stdin="at,a\n1,1\n")
    assert all(line["last_row"] is None for line in map(json.loads, done.stdout.splitlines()))


def test_no_silence_is_reported_without_the_option():
    silence = Silence(None, None, SilenceState(), 0)
    assert silence.check() == []
    assert silence.end(1) == []


def test_pauses_are_reported_while_no_line_is_complete():
    reader, writer = os.pipe()
    lines = Lines(Pipe(reader), reports_pauses=True)
    batches = lines.batches()
    assert next(batches)[:2] == ([], 0)
    os.write(writer, b"a\nb")
    assert next(batch for batch in batches if batch.lines)[:2] == ([b"a"], 2)
    os.write(writer, b"c")
    assert next(batches)[:3] == ([], 2, b"a\n")  # the position is that of the complete lines
    os.write(writer, b"d\n")
    assert next(batch for batch in batches if batch.lines).lines == [b"bcd"]
    os.close(writer)
    assert [batch for batch in batches if batch.lines] == []
    os.close(reader)


@given(
    number=st.integers(1, 999_999_999) | st.floats(1e-9, 1e6).map(lambda x: round(x, 9)), unit=st.sampled_from("smhd")
)
def test_a_duration_is_a_number_and_a_unit(number, unit):
    size = {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
    assert parse_duration(f"{number:.9f} {unit}", "--silence") == float(f"{number:.9f}") * size


@pytest.mark.parametrize("text", ["", "10", "m", "0s", "0.0d", "-5s", "1e3s", "nans", "infs", "10M", "1 0s", "9" * 99])
def test_other_durations_are_refused(text):
    with pytest.raises(InvalidInputError, match="--silence must be a number above 0"):
        parse_duration(text, "--silence")


VALUES = st.none() | st.booleans() | st.integers(-2, 5) | st.floats() | st.text(max_size=3) | st.just([])


@given(value=VALUES | st.fixed_dictionaries(dict.fromkeys(SilenceState._fields, VALUES)))
def test_a_damaged_silence_in_a_model_file_is_refused(value):
    try:
        state = restored_silence(value, "m.imf")
    except InvalidInputError as error:
        if not str(error).startswith("m.imf: "):
            raise AssertionError from error
    else:
        assert restored_silence(state._asdict(), "m.imf") == state
        silence = Silence(1e9, "at", state, 7)
        assert silence.check() == []
        assert len(silence.end(8)) == (state.since is not None)
        json.dumps(silence.state._asdict(), allow_nan=False)
