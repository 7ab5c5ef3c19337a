"""`imondrian watch`: one output line per input line, the same if the stream is stopped and resumed."""

import hashlib
import json
import os
import pty
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import imondrian
from imondrian import InvalidInputError
from imondrian.cli.watch.stream_input import check_position
from tests.cli.conftest import COMMAND, TIMEOUT

DIGEST_OF_NOTHING = hashlib.sha256(b"").hexdigest()
SETTINGS = ("--window", "128", "--trees", "20", "--samples", "32")


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def read_lines(process, n):
    return [json.loads(process.stdout.readline()) for _ in range(n)]


def test_every_input_line_gives_an_output_line(shell):
    done = shell.run("watch", "data.csv", *SETTINGS)
    rows = lines_of(done.stdout)
    assert [row["row"] for row in rows] == list(range(1, 401))
    assert rows[0]["name"] == "n0"
    assert rows[99]["b"] == 15.0
    assert rows[99]["is_anomaly"]
    assert rows[99]["anomaly_score"] > rows[99]["threshold"]
    assert not rows[0]["is_anomaly"]
    assert "features: id, name (category), a, b, c\n" in done.stderr
    assert "400 rows" in done.stderr


def test_the_scores_equal_those_of_a_stream_detector(shell):
    rows = lines_of(shell.run("watch", "data.csv", "--features", "a,b,c", *SETTINGS).stdout)
    detector = imondrian.StreamDetector(3, window=128, n_trees=20, max_samples=32)  # the same default threshold
    assert detector.threshold == 0.001
    results = detector.process_many([{name: row[name] for name in "abc"} for row in rows])
    assert [row["anomaly_score"] for row in rows] == results.score.tolist()
    assert [row["is_anomaly"] for row in rows] == results.is_anomaly.tolist()
    assert [row["surprise"] for row in rows] == results.surprise.tolist()
    assert [-1 if row["incident"] is None else row["incident"] for row in rows] == results.incident.tolist()
    assert {row["incident"] for row in rows} == {None, *range(detector.n_incidents)}


def test_json_input_gives_the_same_scores_as_csv(shell):
    plain = lines_of(shell.run("watch", "data.csv", "--ignore", "id", *SETTINGS).stdout)
    records = [{"name": row["name"], "a": row["a"], "b": row["b"], "c": row["c"], "more": [1, None]} for row in plain]
    text = "\n".join(map(json.dumps, records))
    rows = lines_of(shell.run("watch", *SETTINGS, stdin=text).stdout)
    assert [row["anomaly_score"] for row in rows] == [row["anomaly_score"] for row in plain]
    assert rows[0]["more"] == [1, None]


def test_records_are_written_back_unchanged(shell):
    text = '{"a": 1, "on": true, "big": 12345678901234567890, "s": "x", "n": null}\n'
    rows = lines_of(shell.run("watch", "-q", *SETTINGS, stdin=text).stdout)
    assert {name: rows[0][name] for name in ("a", "on", "big", "s", "n")} == json.loads(text)
    assert isinstance(rows[0]["a"], int)
    assert rows[0]["threshold"] is None  # there is none yet
    done = shell.run("watch", *SETTINGS, stdin="a,b,on,t\n1,,TRUE,x\n1,2,false,y\nz,2,true,y\n")
    assert "features: a, on (category), t (category); left out: b (missing in the first row" in done.stderr
    rows = lines_of(done.stdout)
    cells = [(row["a"], row["b"], row["on"]) for row in rows]
    assert cells == [(1, "", "TRUE"), (1, "2", "false"), ("z", "2", "true")]


def test_json_is_written_back_verbatim(shell):
    lines = [
        '{"a": "3", "b":1.0, "é\\u00e9": "ö\\u2028", "n" : [1E5, {"z": null, "y": 123456789012345678901234567890}]}',
        '{"b": 1E5, "a": 2.50, "c": 1e400}',
        '{"b": 1e400, "a": 1}',
        '{"a": ' + "9" * 5000 + ', "b": 1}',
        '{"a": 1, "b": 2, "t": ' + "9" * 5000 + "}",
    ]
    done = shell.run("watch", "-q", *SETTINGS, stdin="\n".join(lines).encode())
    output = done.stdout.decode().split("\n")[:-1]
    assert [line[: len(text) - 1] + "}" for line, text in zip(output, lines, strict=True)] == lines
    assert [json.loads(line, parse_int=float)["row"] for line in output] == [1, 2, 3, 4, 5]
    errors = [json.loads(line, parse_int=float).get("error") for line in output]
    assert [error is None for error in errors] == [True, True, False, False, True]
    assert errors[2] == "column 'b': inf is not finite."
    assert errors[3] == f"column 'a': '{'9' * 59}... is not finite."


def test_csv_cells_are_written_as_numbers_or_as_text(shell):
    long = "9" * 5000
    text = f"a,b,t\n1,1.10,x\n1e400,{'9' * 30},y\n{long},2,y\n3,4,{long}\n"
    lines = shell.run("watch", "-q", *SETTINGS, "--time", "t", stdin=text).stdout.splitlines()
    starts = [
        '{"a": 1, "b": 1.10, "t": "x", "row": 1, ',
        '{"a": "1e400", "b": 999999999999999999999999999999, "t": "y", "row": 2, ',
        f'{{"a": "{long}", "b": 2, "t": "y", "row": 3, ',
        f'{{"a": 3, "b": 4, "t": "{long}", "row": 4, ',
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert ["error" in json.loads(line) for line in lines] == [False, True, True, False]
    done = shell.run("watch", "-q", "--on-error", "fail", *SETTINGS, stdin=f"a\n1\n{long}\n", check=2)
    assert done.stderr == f"imondrian: Row 2: column 'a': '{'9' * 59}... is not finite.\n"


def test_the_output_is_utf8_whatever_the_encoding_of_the_terminal(shell):
    line = '{"a": 1, "é": "ö"}'
    process = subprocess.run(
        [*COMMAND, "watch", "-q", *SETTINGS],
        cwd=shell.folder,
        input=line.encode(),
        capture_output=True,
        check=True,
        timeout=TIMEOUT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert process.stdout.decode().startswith(line[:-1])


def test_a_key_that_appears_twice_makes_a_row_unusable(shell):
    text = '{"a": 1}\n{"a": 1, "a": 2}\n{"a": 2}\n'
    rows = lines_of(shell.run("watch", "-q", *SETTINGS, stdin=text).stdout)
    assert [row.get("error") for row in rows] == [None, "the key 'a' appears more than once in a JSON object.", None]
    assert [row["row"] for row in rows] == [1, 2, 3]


def test_results_replace_values_of_the_same_name(shell):
    text = '{"a": 1}\n{"row": "mine", "a": 2, "threshold": 9}\n'
    lines = shell.run("watch", "-q", *SETTINGS, stdin=text).stdout.splitlines()
    assert lines[1].startswith('{"a": 2, "row": 2, ')
    assert lines[1].count('"threshold"') == 1


def test_output_lines_are_flushed_immediately(shell):
    process = shell.start("watch", "-q", *SETTINGS)
    header, *rows = shell.text("data.csv").splitlines(keepends=True)
    process.stdin.write(header.encode())
    for i in range(3):  # each output line is read before the next input line is written
        process.stdin.write(rows[i].encode())
        process.stdin.flush()
        assert read_lines(process, 1)[0]["row"] == i + 1
    process.stdin.close()
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()
    process.stderr.close()


def test_a_stopped_and_resumed_stream_gives_the_same_output_as_an_uninterrupted_one(shell):
    whole = shell.run("watch", "data.csv", "-q", *SETTINGS).stdout
    header, *rows = shell.text("data.csv").splitlines(keepends=True)
    first = shell.run("watch", "--model", "state.imf", "-q", *SETTINGS, stdin=header + "".join(rows[:150])).stdout
    second = shell.run("watch", "--model", "state.imf", "-q", stdin=header + "".join(rows[150:])).stdout
    assert first + second == whole
    assert "was created with --window 128; --window 99 is not possible. Omit the option" in shell.fails(
        "watch", "data.csv", "-q", "--model", "state.imf", "--window", "99"
    )
    facts = json.loads(shell.run("info", "state.imf", "--json").stdout)
    assert facts["rows_seen"] == 400
    assert facts["features"] == ["id", "name", "a", "b", "c"]


@pytest.mark.parametrize(
    ("created", "resumed"),
    [
        (["--samples", "0"], ["--samples", "32"]),
        (["--samples", "32"], ["--samples", "0"]),
        (["--learn-anomalies"], ["--no-learn-anomalies"]),
    ],
)
def test_options_that_differ_from_the_model_file_are_shown_as_they_are_written(shell, created, resumed):
    small = ("-q", "--model", "state.imf", "--trees", "2", "--window", "16")
    shell.run("watch", "data.csv", *small, *created)
    errors = shell.fails("watch", "data.csv", *small, *resumed)
    assert f"was created with {' '.join(created)}; {' '.join(resumed)} is not possible." in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_stream_and_saves_the_detector(shell, number):
    process = shell.start("watch", "--model", "state.imf", *SETTINGS)
    process.stdin.write(shell.text("data.csv").encode())
    process.stdin.flush()
    rows = read_lines(process, 400)
    process.send_signal(number)
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert rest == b""
    assert b"400 rows" in errors
    assert b"saved to state.imf" in errors
    assert imondrian.load(shell.folder / "state.imf").n_seen == 400
    assert rows[-1]["row"] == 400


def test_a_hangup_is_ignored_under_nohup(shell):
    command = f"trap '' HUP; exec {' '.join(COMMAND)} watch -q {' '.join(SETTINGS)}"
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=shell.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(b"a\n1\n")
    process.stdin.flush()
    assert read_lines(process, 1)[0]["row"] == 1
    process.send_signal(signal.SIGHUP)
    rest, errors = process.communicate(b"2\n", timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert [row["row"] for row in lines_of(rest.decode())] == [2]


def test_closing_the_terminal_ends_the_stream_and_saves_the_detector(shell):
    shell.write("log.csv", "a\n1\n2\n")
    terminal, process_side = pty.openpty()
    name = os.ttyname(process_side)  # it belongs to the session that opens it first
    command = f"exec {' '.join(COMMAND)} watch --follow log.csv --model state.imf {' '.join(SETTINGS)}"
    process = subprocess.Popen(
        ["bash", "-c", f"{command} < {name} > {name} 2>&1"], cwd=shell.folder, start_new_session=True
    )
    text = b""
    while b'"row": 2' not in text:
        text += os.read(terminal, 4096)
    os.close(terminal)
    os.close(process_side)
    assert process.wait(TIMEOUT) == 0
    assert imondrian.load(shell.folder / "state.imf").n_seen == 2


def test_save_every_saves_the_detector_during_the_stream(shell):
    header, *rows = shell.text("data.csv").splitlines(keepends=True)
    process = shell.start("watch", "--model", "state.imf", "--save-every", "100", "-q", *SETTINGS)
    process.stdin.write((header + "".join(rows[:90])).encode())
    process.stdin.flush()
    read_lines(process, 90)
    assert not (shell.folder / "state.imf").exists()
    process.stdin.write("".join(rows[90:150]).encode())
    process.stdin.flush()
    read_lines(process, 60)
    deadline = time.monotonic() + TIMEOUT
    while not (shell.folder / "state.imf").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()  # like a power failure
    process.communicate(timeout=TIMEOUT)
    assert 100 <= imondrian.load(shell.folder / "state.imf").n_seen <= 150
    assert "--save-every needs --model" in shell.fails("watch", "data.csv", "--save-every", "5")


def test_a_followed_file_is_resumed_where_it_was_left(shell):
    header, *rows = shell.text("data.csv").splitlines(keepends=True)
    log = shell.folder / "log.csv"
    log.write_text(header + "".join(rows[:100]))
    process = shell.start("watch", "--follow", "log.csv", "--model", "state.imf", *SETTINGS)
    assert [row["row"] for row in read_lines(process, 100)] == list(range(1, 101))
    with log.open("a") as file:
        file.write("".join(rows[100:120]))
    followed = read_lines(process, 20)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    with log.open("a") as file:
        file.write("".join(rows[120:130]))
    process = shell.start("watch", "--follow", "log.csv", "--model", "state.imf")
    resumed = read_lines(process, 10)
    assert [row["row"] for row in resumed] == list(range(121, 131))  # no row is processed twice
    log.write_text(header + "".join(rows[130:135]))  # the log is truncated and starts again
    fresh = read_lines(process, 5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT)
    whole = lines_of(shell.run("watch", "data.csv", "-q", *SETTINGS).stdout)
    assert followed + resumed + fresh == whole[100:135]


def test_a_file_truncated_between_two_runs_is_read_from_its_start(shell):
    def followed(n):
        process = shell.start("watch", "--follow", "log.ndjson", "--model", "state.imf", *SETTINGS)
        rows = read_lines(process, n)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 0, errors
        assert rest == b""
        return [row["a"] for row in rows]

    shell.write("log.ndjson", "oops\n" + "".join(f'{{"a": {i}}}\n' for i in range(10)))
    process = shell.start("watch", "--follow", "log.ndjson", "--model", "state.imf", *SETTINGS)
    assert "error" in read_lines(process, 11)[0]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT)
    shell.write("log.ndjson", '{"a": 20}\n{"a": 21}\n')
    assert followed(2) == [20, 21]
    with (shell.folder / "log.ndjson").open("a") as file:
        file.write("".join(f'{{"a": {i}}}\n' for i in range(22, 40)))
    assert followed(18) == list(range(22, 40))  # each row once
    shell.write("log.ndjson", "".join(f'{{"a": {i}}}\n' for i in range(100, 160)))  # longer, other content
    assert followed(60) == list(range(100, 160))


class Followed:
    """A process that follows a file with a model."""

    def __init__(self, shell, name, *arguments):
        self._process = shell.start("watch", "--follow", name, "--model", "state.imf", *arguments)
        self._limit = threading.Timer(TIMEOUT, self._process.kill)  # do not wait for rows that never arrive
        self._limit.start()

    def rows(self, n):
        return [json.loads(self._process.stdout.readline()) for _ in range(n)]

    def end(self):
        """End the process, which must have no more output; return its standard error."""
        self._process.send_signal(signal.SIGTERM)
        rest, errors = self._process.communicate(timeout=TIMEOUT)
        self._limit.cancel()
        assert self._process.returncode == 0, errors
        assert rest == b""
        return errors.decode()


def test_a_rotated_file_is_followed_like_tail_does(shell):
    log = shell.folder / "log.csv"
    log.write_text("a,b\n1,10\n")
    with log.open("a") as old:
        process = Followed(shell, "log.csv", *SETTINGS)
        assert [row["a"] for row in process.rows(1)] == [1]
        log.rename(shell.folder / "log.csv.1")
        time.sleep(0.5)  # no file has the name for a while
        old.write("2,20\n")
        old.flush()
        assert [row["a"] for row in process.rows(1)] == [2]
        log.touch()  # created by the rotation, before the writing program has noticed it
        time.sleep(0.5)
        old.write("3,30\n4,40")  # the last line has no line end
    log.write_text("b,a\n50,5\n")  # a header in another order
    rows = process.rows(3)
    assert [(row["a"], row["b"]) for row in rows] == [(3, 30), (4, 40), (5, 50)]
    assert [row["row"] for row in rows] == [3, 4, 5]
    log.rename(shell.folder / "log.csv.2")
    log.write_text("60,6\n")  # without a header
    assert [(row["a"], row["b"], row["row"]) for row in process.rows(1)] == [(6, 60, 6)]
    assert "log.csv was replaced: it is read from its start." in process.end()
    with log.open("a") as file:
        file.write("70,7\n")
    process = Followed(shell, "log.csv")  # resumes in a file without a header
    assert [(row["a"], row["b"], row["row"]) for row in process.rows(1)] == [(7, 70, 7)]
    process.end()


def test_a_truncated_file_is_read_from_its_start_even_if_it_has_grown_again(shell):
    log = shell.folder / "log.ndjson"
    log.write_text('{"a": 1}\n{"a": 2}\n')
    process = Followed(shell, "log.ndjson", *SETTINGS)
    assert [row["a"] for row in process.rows(2)] == [1, 2]
    log.write_text("".join(f'{{"a": {i}}}\n' for i in range(10, 20)))  # as long as before, and longer
    assert [row["a"] for row in process.rows(10)] == list(range(10, 20))
    assert "log.ndjson was truncated: it is read from its start." in process.end()


def test_a_row_that_equals_a_numeric_header_is_a_row(shell):
    shell.write("numbers.csv", "0,1\n1,0\n0,1\n1,1\n0,1\n")
    rows = [json.loads(line) for line in shell.run("watch", "numbers.csv", "-q").stdout.splitlines()]
    assert [(row["0"], row["1"]) for row in rows] == [(1, 0), (0, 1), (1, 1), (0, 1)]


def test_a_row_is_not_taken_for_a_header_after_the_file_was_truncated(shell):
    log = shell.folder / "log.csv"
    log.write_text("0,1\n1,2\n3,4\n")
    process = Followed(shell, "log.csv", *SETTINGS)
    process.rows(2)
    for lines, expected in (("1,0\n0,5\n", [(1, 0), (0, 5)]), ("0,1\n1,1\n", [(1, 1)]), ("1,1\n", [(1, 1)])):
        log.write_text("")
        time.sleep(1.0)
        log.write_text(lines)
        assert [(row["0"], row["1"]) for row in process.rows(len(expected))] == expected
    process.end()


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_file_rotated_between_two_runs_is_read_to_its_end(shell, is_copied):
    log, old = shell.folder / "log.csv", shell.folder / "log.csv.1"
    log.write_text("a\n1\n2\n")
    process = Followed(shell, "log.csv", *SETTINGS)
    process.rows(2)
    process.end()
    with log.open("a") as file:
        file.write("3\n")
    if is_copied:
        old.write_text(log.read_text())
    else:
        log.rename(old)
    log.write_text("a\n4\n")
    process = Followed(shell, "log.csv", "-q")
    assert [(row["row"], row["a"]) for row in process.rows(2)] == [(3, 3), (4, 4)]
    assert (
        "log.csv has been replaced or truncated since it was followed: the rest of log.csv.1 is read first"
        in process.end()
    )


def test_a_warning_says_that_rows_were_lost_between_two_runs(shell):
    log = shell.folder / "log.csv"
    log.write_text("a\n1\n2\n")
    process = Followed(shell, "log.csv", *SETTINGS)
    process.rows(2)
    process.end()
    log.write_text("a\n4\n")
    process = Followed(shell, "log.csv", "-q")
    assert [(row["row"], row["a"]) for row in process.rows(1)] == [(3, 4)]
    assert "log.csv is not the file that was followed" in process.end()


def save_with_position(shell, position):
    """Save a detector with a position in a followed file, as a damaged or forged model file could have it."""
    detector = imondrian.StreamDetector(2, n_trees=4, window=64)
    detector.process_many([{"a": a, "b": b} for a, b in np.random.default_rng(0).normal(size=(100, 2)).tolist()])
    imondrian.save(detector, shell.folder / "state.imf", {"place": {"digest": DIGEST_OF_NOTHING, **position}})


POSITIONS = [{"position": position} for position in (10**30, 2**63, -1, True, 1.0, None)]
POSITIONS += [{"position": 0, "header": header} for header in ("\ud800", "", " \r", "\ufeff", "a,b\nc", 1)]


@pytest.mark.parametrize("position", POSITIONS)
def test_impossible_positions_are_rejected(position):
    with pytest.raises(InvalidInputError, match=r"m\.imf: the stored position in the followed file is invalid"):
        check_position({"digest": DIGEST_OF_NOTHING, **position}, "m.imf")


@pytest.mark.parametrize("position", [{"position": 10**30}, *({"position": 0, "header": h} for h in ("\ud800", "a,a"))])
def test_an_impossible_position_in_a_model_file_is_an_error(shell, position):
    shell.write("log.csv", "a,b\n1,2\n")
    save_with_position(shell, position)
    errors = shell.run("watch", "--follow", "log.csv", "--model", "state.imf", "-q", check=2).stderr
    assert "Traceback" not in errors
    assert errors.count("\n") == 1


def test_a_position_beyond_the_end_of_the_file_is_not_followed(shell):
    shell.write("log.csv", "a,b\n1,2\n")
    save_with_position(shell, {"position": 10**12})
    process = Followed(shell, "log.csv", "-q")
    assert [row["row"] for row in process.rows(1)] == [101]
    assert "log.csv is not the file that was followed" in process.end()


def test_a_stream_whose_output_nobody_reads_can_be_stopped(shell):
    header, *rows = shell.text("data.csv").splitlines(keepends=True)
    shell.write("long.csv", header + "".join(rows) * 20)
    process = shell.start("watch", "long.csv", "--model", "state.imf", "-q", *SETTINGS)
    assert process.stdout.readline()  # it is running, and the pipe will soon be full
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT) == 0
    process.stdout.close()
    process.stderr.close()
    process.stdin.close()
    assert 0 < imondrian.load(shell.folder / "state.imf").n_seen < 8000


def test_a_stream_with_other_features_is_refused(shell):
    shell.run("watch", "--model", "state.imf", "-q", *SETTINGS, stdin="a,b\n1,2\n")
    assert "created with other features: there is no column 'a'" in shell.fails(
        "watch", "--model", "state.imf", "-q", stdin="zz,b\n1,2\n"
    )
    assert "was created with the features a, b" in shell.fails(
        "watch", "--model", "state.imf", "-q", "--features", "b,a", stdin="a,b\n1,2\n"
    )
    assert "There is no column 't'" in shell.fails("watch", "--time", "t", "-q", stdin="a,b\n1,2\n")
    assert "has its own column 'row'" in shell.fails("watch", "-q", stdin="a,row\n1,2\n")
    rows = lines_of(shell.run("watch", "--model", "state.imf", "-q", stdin='{"a": 1}\n{"a": 1, "b": 2}\n').stdout)
    assert ["error" in row for row in rows] == [False, False]
    detector = imondrian.load(shell.folder / "state.imf")
    assert (detector.n_seen, detector.n_missing) == (3, 1)


def test_a_followed_json_file_is_resumed_where_it_was_left(shell):
    shell.write("log.ndjson", '{"a": 1}\n{"a": 2}\n')
    for rows in ([1, 2], [3]):
        process = shell.start("watch", "--follow", "log.ndjson", "--model", "state.imf", *SETTINGS)
        assert [row["row"] for row in read_lines(process, len(rows))] == rows
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
        with (shell.folder / "log.ndjson").open("a") as file:
            file.write('{"a": 3}\n')


def test_an_unusable_row_has_its_error_in_its_line_or_ends_the_stream(shell):
    text = "a,b\n1,2\n1,x\n1\n,5\n3,4\n"
    done = shell.run("watch", "--missing", "drop", *SETTINGS, stdin=text)
    rows = lines_of(done.stdout)
    assert [row["row"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row.get("error") for row in rows] == [
        None,
        "column 'b': 'x' is not a number.",
        "the line has 1 fields, but there are 2 columns.",
        "column 'a': the value is missing.",
        None,
    ]
    assert [row["anomaly_score"] is None for row in rows] == [False, True, True, True, False]
    assert "3 unusable rows" in done.stderr
    done = shell.run("watch", "--on-error", "fail", "--model", "s.imf", "-q", *SETTINGS, stdin=text, check=2)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == "imondrian: Row 2: column 'b': 'x' is not a number.\n"
    assert imondrian.load(shell.folder / "s.imf").n_seen == 1


def test_no_row_is_learned_twice_after_a_run_that_ended_within_a_batch(shell):
    lines = [f"{i % 7},{i % 5}" for i in range(10)]
    (shell.folder / "log.csv").write_text("\n".join(["a,b", *lines, "1,x", ""]))
    for _ in range(2):
        arguments = ("watch", "--follow", "log.csv", "--model", "s.imf", "--on-error", "fail", "-q", *SETTINGS)
        done = shell.run(*arguments, check=2)
        assert done.stderr == "imondrian: Row 11: column 'b': 'x' is not a number.\n"
        assert imondrian.load(shell.folder / "s.imf").n_seen == 10


def test_no_row_is_lost_or_repeated_after_the_output_pipe_was_closed(shell):
    rows = [f'{{"a": {i % 7}, "b": {i % 5}, "i": {i}}}\n\n' for i in range(3_000)]
    (shell.folder / "log.ndjson").write_text("".join(rows))
    watch = f"{' '.join(COMMAND)} watch --follow log.ndjson --ignore i --model state.imf -q {' '.join(SETTINGS)}"
    subprocess.run(["bash", "-c", f"{watch} | head -3"], cwd=shell.folder, timeout=TIMEOUT, check=True)
    n_seen = imondrian.load(shell.folder / "state.imf").n_seen
    assert n_seen >= 3
    process = shell.start("watch", "--follow", "log.ndjson", "--ignore", "i", "--model", "state.imf", *SETTINGS)
    rest = read_lines(process, 3_000 - n_seen)
    process.terminate()
    process.communicate(timeout=TIMEOUT)
    assert [(row["i"], row["row"]) for row in rest] == [(i, i + 1) for i in range(n_seen, 3_000)]


def test_a_detector_created_in_python_can_be_resumed(shell):
    detector = imondrian.StreamDetector(2, window=64, n_trees=5)
    detector.process_many([[1.0, 2.0], [3.0, 4.0]])
    imondrian.save(detector, shell.folder / "python.imf")
    rows = lines_of(shell.run("watch", "--model", "python.imf", "-q", stdin="a,b\n1,2\nx,1\n3,4\n").stdout)
    assert [row["row"] for row in rows] == [3, 4, 5]
    assert "error" in rows[1]
    resumed = imondrian.load(shell.folder / "python.imf")
    assert (resumed.n_seen, resumed.n_skipped, resumed.feature_names) == (5, 1, ["a", "b"])
    imondrian.save(imondrian.StreamDetector(2), shell.folder / "other.imf")
    message = shell.fails("watch", "-q", "--model", "other.imf", stdin="a,b,c\n1,2,3\n")
    assert "has 2 unnamed features" in message


@pytest.mark.parametrize("options", [(), ("--features", "x,c"), ("--missing", "drop")])
@pytest.mark.parametrize(
    "lines",
    [
        ["{}", '{"x": null, "c": null, "t": 1}', '{"x": 1.5, "c": "a", "t": 2}', '{"x": null, "c": "", "t": 3}'],
        ["x,c,t", ",,1", " ,NA,2", "1.5,a,3", ",,4"],
    ],
    ids=["json", "csv"],
)
def test_first_rows_in_which_everything_is_missing_are_skipped_like_later_ones(shell, options, lines):
    """They do not determine the features: c is a category because of the first row with values."""
    n_rows = len(lines) - (lines[0] == "x,c,t")
    done = shell.run("watch", "--time", "t", *options, *SETTINGS, stdin="\n".join(lines) + "\n")
    rows = lines_of(done.stdout)
    assert [row["row"] for row in rows] == list(range(1, n_rows + 1))
    assert [row.get("error") is None for row in rows] == [row.get("x") == 1.5 for row in rows]
    assert {row["error"] for row in rows[: n_rows - 2]} == {"every value is missing."}
    assert "features: x, c (category); left out: t (the timestamp column)" in done.stderr
    assert f"{n_rows:,} rows, 0 anomalies, 0 incidents, {n_rows - 1:,} unusable rows" in done.stderr
    done = shell.run("watch", "--on-error", "fail", *options, "--time", "t", stdin="\n".join(lines), check=2)
    assert "Row 1: every value is missing." in done.stderr


def test_unusable_rows_before_the_first_usable_one_are_numbered(shell):
    text = '{"a": 1\n[]\n{"a": 1}\n{"a": "x"}\n'
    rows = lines_of(shell.run("watch", "-q", "--model", "s.imf", *SETTINGS, stdin=text).stdout)
    assert ["error" in row for row in rows] == [True, True, False, True]
    assert [row["row"] for row in rows] == [1, 2, 3, 4]
    names = ["row", "anomaly_score", "surprise", "is_anomaly", "threshold", "incident", "error"]
    assert [list(row)[-7:] for row in rows[:2]] == [names] * 2
    assert [rows[0][name] for name in names[1:6]] == [None, None, False, None, None]
    detector = imondrian.load(shell.folder / "s.imf")
    assert (detector.n_seen, detector.n_skipped) == (4, 3)
    more = lines_of(shell.run("watch", "-q", "--model", "s.imf", stdin='{\n{"a": 2}\n').stdout)
    assert [row["row"] for row in more] == [5, 6]
    done = shell.run("watch", "-q", "--on-error", "fail", *SETTINGS, stdin="{\n", check=2)
    assert done.stderr.startswith("imondrian: Row 1: ")


def test_without_a_usable_row_there_is_no_model_file_and_a_note_says_so(shell):
    done = shell.run("watch", "--model", "none.imf", stdin="{\n")
    assert "1 row, 0 anomalies, 0 incidents, 1 unusable row; no usable row, so none.imf is not written" in done.stderr
    assert not (shell.folder / "none.imf").exists()


@pytest.mark.parametrize("depth", [98, 120, 968, 100_000])
def test_a_deeply_nested_line_is_an_unusable_row(shell, depth):
    deep = "[" * depth + "]" * depth
    text = f'{{"v": 1, "anomaly_score": 2}}\n{{"v": 2, "anomaly_score": 2, "x": {deep}}}\n{{"v": 3}}\n'
    rows = lines_of(shell.run("watch", "-q", *SETTINGS, stdin=text).stdout)
    assert [row.get("error") for row in rows] == [
        None,
        "the JSON is nested more than 100 levels deep." if depth > 98 else None,
        None,
    ]


def test_anomalies_are_explained_by_the_rows_before_them(shell):
    plain = lines_of(shell.run("watch", "data.csv", "--features", "a,b,c", *SETTINGS).stdout)
    rows = lines_of(shell.run("watch", "data.csv", "--features", "a,b,c", "--explain", *SETTINGS).stdout)
    assert rows[99]["explanation"].startswith("b = 15 (high; expected")
    assert rows[299]["explanation"].startswith("c = -15 (low; expected")
    assert [row["is_anomaly"] for row in rows] == [row["explanation"] is not None for row in rows]
    assert [{k: v for k, v in row.items() if k != "explanation"} for row in rows] == plain
    options = ("--features", "b", "--explain", "--shingle", "3", "--threshold", "0.02", *SETTINGS)
    shingled = lines_of(shell.run("watch", "data.csv", *options).stdout)
    assert shingled[100]["explanation"].startswith("b 1 row ago = 15 (high; expected ")
    assert shingled[99]["explanation"].startswith("b = 15 (high; expected ")


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"load": 40.0, "state": "on"}, ("load", " = 40 (high; expected ")),
        ({"load": 1.0, "state": "broken"}, ("state", " = broken (never seen), ")),
    ],
)
def test_with_a_shingle_the_odd_row_is_named_with_its_value(shell, odd, reason):
    rng = np.random.default_rng(0)
    rows = [{"load": load, "state": "on" if i % 3 else "idle"} for i, load in enumerate(rng.normal(size=304).round(2))]
    rows[300] = odd
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    options = ("-q", "--explain", "--shingle", "4", "--threshold", "0.05", "--window", "256", "--model", "s.imf")
    found = [row["explanation"] for row in lines_of(shell.run("watch", *options, stdin=text).stdout)[300:]]
    feature, value = reason
    for explanation, ago in zip(found, ("", " 1 row ago", " 2 rows ago", " 3 rows ago"), strict=True):
        assert explanation.startswith(f"{feature}{ago}{value}")
        assert explanation.count("%") <= 6  # three reasons, and how common a category is
    resumed = '{"load": 1.0, "state": "worn"}\n'  # the categories of the rows before it are not known
    explanation = lines_of(shell.run("watch", *options, stdin=resumed).stdout)[0]["explanation"]
    assert explanation.startswith("state = worn (never seen), ")


def test_the_output_can_be_watched_again(shell):
    once = shell.run("watch", "data.csv", "-q", "--features", "a,b,c", "--explain", *SETTINGS).stdout
    twice = shell.run("watch", "-q", "--ignore", "id,name", *SETTINGS, stdin=once).stdout
    assert [row["anomaly_score"] for row in lines_of(once)] == [row["anomaly_score"] for row in lines_of(twice)]
    assert all("explanation" not in row for row in lines_of(twice))


def test_wrong_streams_give_a_one_line_error(shell):
    assert "file not found" in shell.fails("watch", "none.csv")
    assert "file not found" in shell.fails("watch", "--follow", "none.csv")
    assert "not both" in shell.fails("watch", "data.csv", "--follow", "data.csv")
    assert "no column 'z'" in shell.fails("watch", "data.csv", "-q", "--features", "z")
    assert "can be used as a feature" in shell.fails("watch", "-q", stdin="a,b\n2024-01-01,\n")
    shell.run("fit", "data.csv", "--save", "model.imf", "-q")
    assert "model.imf does not contain a stream detector" in shell.fails("watch", "data.csv", "--model", "model.imf")
    assert shell.run("watch", "-q", stdin="").stdout == ""


def test_fail_on_anomaly_gives_exit_code_1_if_there_are_anomalies(shell):
    shell.run("watch", "data.csv", "-q", "--fail-on-anomaly", *SETTINGS, check=1)
    shell.run("watch", "-q", "--fail-on-anomaly", *SETTINGS, stdin="a\n1\n2\n", check=0)


def test_closing_the_output_pipe_ends_the_stream_and_saves_the_detector(shell):
    pipe = f"{' '.join(COMMAND)} watch data.csv --model state.imf -q --explain | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipe], cwd=shell.folder, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["row"] == 1
    assert done.stderr == b""
    assert imondrian.load(shell.folder / "state.imf").n_seen >= 1
    assert "state.imf" in os.listdir(shell.folder)  # noqa: PTH208


def test_categories_and_gaps_are_learned_and_explained(shell):
    rng = np.random.default_rng(0)
    countries = rng.choice(["DE", "FR", "IT"], 400)
    numbers = rng.normal(10.0, 1.0, 400).round(3).astype(str)
    countries[350], numbers[200:210] = "KP", ""
    lines = [
        f"{code},{number},{i % 3},{i % 2 == 0}" for i, (code, number) in enumerate(zip(countries, numbers, strict=True))
    ]
    shell.write("orders.csv", "\n".join(["country,amount,desk,gift", *lines]))
    options = ("--categorical", "desk", "--threshold", "0.02", "--window", "256", "--explain", "--model", "s.imf")
    done = shell.run("watch", "orders.csv", *options)
    assert "features: country (category), amount, desk (category), gift (category)" in done.stderr
    assert "10 missing numbers filled in" in done.stderr
    rows = lines_of(done.stdout)
    assert rows[350]["is_anomaly"]
    assert rows[350]["explanation"].startswith("country = KP (never seen), ")
    assert not any("error" in row for row in rows)
    detector = imondrian.load(shell.folder / "s.imf")
    assert detector.feature_names == ["country", "amount", "desk", "gift"]
    again = shell.run("watch", "--model", "s.imf", stdin='{"country": "KP", "gift": true, "desk": 2}\n{"amount": 1}\n')
    assert [row["anomaly_score"] > 0.0 for row in lines_of(again.stdout)] == [True, True]
    assert "1 missing numbers filled in" in again.stderr
    assert "created with --missing median; --missing drop is not possible" in shell.fails(
        "watch", "--model", "s.imf", "--missing", "drop", stdin="a\n1\n"
    )


def test_columns_that_a_stream_cannot_use_are_left_out(shell):
    text = "at;price;note;a\n2024-01-01 10:00;1,5;the customer called again;1\n2024-01-01 10:01;2,5;x;2\n"
    done = shell.run("watch", *SETTINGS, stdin=text)
    assert "features: a; left out: at (a date or time), price (a number that is not written plainly" in done.stderr
    assert "note (free text)" in done.stderr
