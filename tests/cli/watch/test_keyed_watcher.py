"""`imondrian watch --by`: one detector per key, with the results of `Fleet`, saved and resumed as one file."""

import json
import signal
import subprocess
import time

import numpy as np
import pytest

import imondrian
from imondrian import Fleet, InvalidInputError
from imondrian.cli.option_checks import parse_bytes
from imondrian.cli.watch.key_columns import key_of, members_of_key
from imondrian.cli.watch.keyed_incident_events import StreamRow, restored_alarms, stored_alarms

SMALL = {"window": 32, "n_trees": 8, "max_samples": 16}
SETTINGS = ("--window", "32", "--trees", "8", "--samples", "16")
ODD_KEYS = [
    "web 1",
    '"quoted", twice',
    "a\nb",
    "🦆",
    "NA",
    "-",
    "null",
    " x ",
    "é" * 300,
    "1",
    1,
    -7,
    2**62,
    "\ud800",
    "\0",
]


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def stream(keys, n_rows):
    """Return rows of the keys in random order; in the second half, one in fifty is far away."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n_rows):
        is_spike = i > n_rows // 2 and rng.random() < 0.02
        x = rng.normal(size=2) + 15.0 * is_spike
        rows.append({"ts": f"t{i}", "host": keys[rng.integers(len(keys))], "cpu": float(x[0]), "mem": float(x[1])})
    return rows


def as_ndjson(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def as_csv(rows):
    return "ts,host,cpu,mem\n" + "".join(f"{row['ts']},{row['host']},{row['cpu']!r},{row['mem']!r}\n" for row in rows)


def fleet_results(fleet, rows):
    """Return what the fleet computes, as the columns of the command line."""
    results = fleet.process_many(
        [row["host"] for row in rows], [{"cpu": row["cpu"], "mem": row["mem"]} for row in rows]
    )
    return [
        {
            "anomaly_score": score,
            "surprise": surprise,
            "is_anomaly": label,
            "threshold": threshold if threshold < 1.0 else None,
            "incident": None if incident == -1 else incident,
            "is_borrowed": is_borrowed,
        }
        for score, label, threshold, _, surprise, incident, is_borrowed in zip(
            *(column.tolist() for column in results), strict=True
        )
    ]


def results_of(lines):
    names = ("anomaly_score", "surprise", "is_anomaly", "threshold", "incident", "is_borrowed")
    return [{name: line[name] for name in names} for line in lines]


@pytest.mark.parametrize("text", [as_csv, as_ndjson])
def test_the_results_equal_those_of_a_fleet(shell, text):
    rows = stream(["a", "b", "c", "d", "e"], 1500)
    done = shell.run("watch", "--by", "host", "--time", "ts", *SETTINGS, stdin=text(rows))
    lines = lines_of(done.stdout)
    assert [line["row"] for line in lines] == list(range(1, 1501))
    assert [line["host"] for line in lines] == [row["host"] for row in rows]
    fleet = Fleet(2, **SMALL)
    assert results_of(lines) == fleet_results(fleet, rows)
    assert any(line["is_anomaly"] for line in lines)
    assert "features: cpu, mem; left out: ts (the timestamp column), host (the key)" in done.stderr
    assert f"1,500 rows of 5 keys, {sum(line['is_anomaly'] for line in lines)} anomalies, " in done.stderr


def test_incidents_name_the_key_and_rows_of_the_stream(shell):
    rows = stream(["a", "b", "c"], 1500)
    arguments = ("watch", "--by", "host", "--time", "ts", "--incidents", "--gap", "20", *SETTINGS)
    done = shell.run(*arguments, "--scored", "scored.ndjson", stdin=as_csv(rows))
    events, scored = lines_of(done.stdout), lines_of(shell.text("scored.ndjson"))
    fleet = Fleet(2, rules={"gap": 20}, **SMALL)
    fleet_results(fleet, rows)
    expected = [(key, event.incident.number, event.incident.is_open) for key, event in fleet.events]
    assert [(event["host"], event["incident"], event["event"] == "opened") for event in events] == expected
    assert len(expected) > 10
    for event, (key, found) in zip(events, fleet.events, strict=True):
        own = [row for row in scored if row["host"] == key]
        assert event["first_row"] == own[found.incident.first]["row"]
        assert event["last_row"] == own[found.incident.last]["row"]
        assert event["opened_row"] == own[found.incident.opened]["row"]
        assert event["peak"]["row"] == own[found.incident.peak]["row"]
        assert event["peak"]["time"] == own[found.incident.peak]["ts"]
        assert event["peak"]["anomaly_score"] == own[found.incident.peak]["anomaly_score"]
        if found.incident.closed is not None:
            assert event["closed_row"] == own[found.incident.closed]["row"]
            assert event["closed_time"] == own[found.incident.closed]["ts"]
    assert any("(high; expected " in (event["explanation"] or "") for event in events)
    n_open = sum(incident.is_open for _, incident in fleet.incidents)
    assert n_open
    assert done.stderr.count(" of host '") == n_open


def test_a_stopped_run_goes_on_where_it_stopped(shell):
    rows = stream(["a", "b", "c"], 900)
    whole = shell.run("watch", "--by", "host", "--time", "ts", "--incidents", *SETTINGS, stdin=as_csv(rows))
    shell.write("log.csv", as_csv(rows[:500]))
    arguments = ("watch", "--by", "host", "--time", "ts", "--incidents", *SETTINGS)
    following = ("--follow", "log.csv", "--model", "state.imf", "--scored", "scored.ndjson")
    first = shell.start(*arguments, *following)
    while not (shell.folder / "scored.ndjson").exists() or shell.text("scored.ndjson").count("\n") < 500:
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGTERM)
    output, error = first.communicate()
    assert first.returncode == 0, error
    assert sorted(path.name for path in shell.folder.glob("state*")) == ["state.imf"]
    with (shell.folder / "log.csv").open("a") as file:
        file.write(as_csv(rows[500:]).partition("\n")[2])
    second = shell.start(*arguments, *following)
    while shell.text("scored.ndjson").count("\n") < 900:
        assert second.poll() is None
        time.sleep(0.05)
    second.send_signal(signal.SIGINT)
    more, error = second.communicate()
    assert second.returncode == 0, error
    assert b"resumed after 500 rows, with 3 keys" in error
    assert lines_of((output + more).decode()) == lines_of(whole.stdout)
    scored = lines_of(shell.text("scored.ndjson"))
    assert [line["row"] for line in scored] == list(range(1, 901))
    assert results_of(scored) == fleet_results(Fleet(2, **SMALL), rows)


def test_a_signal_in_the_middle_loses_no_row_and_learns_none_twice(shell):
    rows = stream([f"h{i}" for i in range(20)], 20_000)
    shell.write("log.csv", as_csv(rows))
    following = ("--follow", "log.csv", "--model", "state.imf", "--incidents", "--scored", "scored.ndjson")
    for n_lines in (1, 8_000, 20_000):
        process = shell.start("watch", "--by", "host", "--time", "ts", *following, *SETTINGS, stdout=subprocess.DEVNULL)
        while not (shell.folder / "scored.ndjson").exists() or shell.text("scored.ndjson").count("\n") < n_lines:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate()
        assert process.returncode == 0, error
    scored = lines_of(shell.text("scored.ndjson"))
    assert [line["row"] for line in scored] == list(range(1, 20_001))
    assert results_of(scored) == fleet_results(Fleet(2, **SMALL), rows)


def test_a_killed_run_is_repeated_since_its_last_save(shell):
    rows = stream(["a", "b", "c"], 5_000)
    shell.write("log.csv", as_csv(rows[:4_000]))
    arguments = ("watch", "--by", "host", "--time", "ts", "--follow", "log.csv", "--model", "state.imf", *SETTINGS)
    first = shell.start(*arguments, "--save-every", "1000")
    for _ in range(4_000):
        first.stdout.readline()
    first.kill()
    first.communicate()
    with Fleet.load(shell.folder / "state.imf") as saved:
        n_saved = saved.n_rows
    assert n_saved >= 1000
    shell.write("log.csv", as_csv(rows))
    second = shell.start(*arguments)
    lines = [json.loads(second.stdout.readline()) for _ in range(5_000 - n_saved)]
    second.send_signal(signal.SIGTERM)
    _, error = second.communicate()
    assert second.returncode == 0, error
    assert lines[0]["row"] == n_saved + 1
    assert results_of(lines) == fleet_results(Fleet(2, **SMALL), rows)[n_saved:]


def test_a_small_ceiling_moves_keys_to_the_model_file(shell):
    keys = [f"h{i}" for i in range(60)]
    rows = stream(keys, 3_000)
    size = f"{Fleet(2, **SMALL).bytes_per_key * 7}B"
    done = shell.run(
        "watch", "--by", "host", "--time", "ts", "--model", "m.imf", "--max-memory", size, *SETTINGS, stdin=as_csv(rows)
    )
    expected = fleet_results(Fleet(2, **SMALL), rows)
    assert results_of(lines_of(done.stdout)) == expected
    assert "3,000 rows of 60 keys" in done.stderr
    assert "dropped" not in done.stderr
    facts = json.loads(shell.run("info", "m.imf", "--json").stdout)
    assert (facts["type"], facts["keys"], facts["rows_seen"], facts["features"]) == ("fleet", 60, 3000, ["cpu", "mem"])
    assert facts["bytes_per_key"] == Fleet(2, **SMALL).bytes_per_key
    assert facts["parameters"]["window"] == 32
    assert "bytes per key" in shell.run("info", "m.imf").stdout


def test_without_a_model_file_keys_are_dropped_and_counted(shell):
    rows = stream([f"h{i}" for i in range(60)], 1_000)
    n_bytes = Fleet(2, **SMALL).bytes_per_key * 7
    arguments = ("watch", "--by", "host", "--time", "ts", "--max-memory", f"{n_bytes}B", *SETTINGS)
    done = shell.run(*arguments, stdin=as_csv(rows))
    fleet = Fleet(2, max_bytes=n_bytes, **SMALL)
    assert results_of(lines_of(done.stdout)) == fleet_results(fleet, rows)
    assert f"{fleet.n_dropped} keys dropped to stay below --max-memory; --model would keep them" in done.stderr
    assert len(lines_of(shell.run(*arguments, "--incidents", stdin=as_csv(rows)).stdout)) == len(fleet.events)


def test_keys_may_be_any_text_or_integer(shell):
    rows = stream(ODD_KEYS, 1_500)
    done = shell.run("watch", "--by", "host", "--time", "ts", *SETTINGS, stdin=as_ndjson(rows).encode())
    lines = lines_of(done.stdout.decode())
    assert results_of(lines) == fleet_results(Fleet(2, **SMALL), rows)
    assert [line["host"] for line in lines] == [row["host"] for row in rows]
    arguments = ("watch", "-q", "--by", "host", "--incidents", "--time", "ts", "--model", "m.imf")
    done = shell.run(*arguments, *SETTINGS, "--exec", "true", stdin=as_ndjson(rows).encode())
    hosts = {event["host"] for event in lines_of(done.stdout.decode())}
    assert len(hosts) > 5
    assert hosts <= set(ODD_KEYS)
    assert done.stderr == b""
    with imondrian.load(shell.folder / "m.imf") as fleet:
        assert set(fleet.keys()) == set(ODD_KEYS)


def test_csv_keys_are_text(shell):
    text = 'host,cpu\n"a, ""b""",1\n007,2\n7,3\n🦆,4\n"two\nlines",5\nNA,6\n'
    done = shell.run("watch", "--by", "host", "--model", "m.imf", *SETTINGS, stdin=text.encode())
    lines = lines_of(done.stdout.decode())
    assert [line.get("host") for line in lines] == [
        'a, "b"',
        "007",
        "7",
        "🦆",
        None,
        'lines"',
        "NA",
    ]  # a record must not span lines
    assert [line.get("error") is None for line in lines] == [True, True, True, True, False, True, True]
    with Fleet.load(shell.folder / "m.imf") as fleet:
        assert set(fleet.keys()) == {'a, "b"', "007", "7", "🦆", 'lines"', "NA"}


def test_several_columns_form_one_key(shell):
    rows = [{"host": "a,b"[i % 3], "disk": i % 2, "x": float(i % 7)} for i in range(400)]
    rows[390]["x"] = 500.0
    done = shell.run("watch", "--by", "host,disk", "--incidents", "--warm-up", "60", *SETTINGS, stdin=as_ndjson(rows))
    opened = next(event for event in lines_of(done.stdout) if event["opened_row"] == 391)
    assert (opened["host"], opened["disk"]) == (rows[390]["host"], 0)
    assert "400 rows of 6 keys" in done.stderr
    assert f"of host '{opened['host']}', disk 0" in done.stderr


def test_unusable_rows_are_written_with_the_error(shell):
    text = (
        '{"cpu": 0}\n{"host": "a", "cpu": 1}\n{"host": "", "cpu": 2}\n{"host": null, "cpu": 2}\n{"cpu": 2}\n'
        '{"host": 1.5, "cpu": 2}\n{"host": true, "cpu": 2}\n{"host": 9223372036854775808, "cpu": 2}\n'
        '{"host": "a", "cpu": null}\n{"host": "a", "cpu": "x"}\nnothing\n{"host": "a", "cpu": 3}\n'
    )
    done = shell.run("watch", "--by", "host", "--model", "m.imf", *SETTINGS, stdin=text)
    lines = lines_of(done.stdout)
    errors = [line.get("error") for line in lines]
    assert [line["row"] for line in lines] == list(range(1, 13))
    assert errors[1] is errors[11] is None
    assert errors[0] == errors[2] == errors[3] == errors[4] == "column 'host': the key is missing."
    assert errors[5] == "column 'host': a key must be text or an integer of at most 63 bits, but is 1.5."
    assert "but is True" in errors[6]
    assert "but is 9223372036854775808" in errors[7]
    assert errors[8:10] == ["column 'cpu': the value is missing.", "column 'cpu': 'x' is not a number."]
    assert all(line["anomaly_score"] is None for line, error in zip(lines, errors, strict=True) if error)
    assert "12 rows of 1 key, 0 anomalies, 0 incidents, 10 unusable rows" in done.stderr
    with Fleet.load(shell.folder / "m.imf") as fleet:
        assert fleet.n_rows == 4  # those of "a"
        assert fleet.detector("a").n_skipped == 2
    done = shell.run("watch", "--by", "host", "--model", "m.imf", stdin='{"host": "b", "cpu": 1}\n')
    assert lines_of(done.stdout)[0]["row"] == 13
    done = shell.run("watch", "--by", "host", "--incidents", stdin=text)
    assert done.stderr.count("is unusable") == 10
    done = shell.run("watch", "-q", "--by", "host", "--on-error", "fail", stdin=text.partition("\n")[2], check=2)
    assert len(lines_of(done.stdout)) == 1
    assert done.stderr == "imondrian: Row 2: column 'host': the key is missing.\n"


def test_unusable_rows_count_as_in_a_fleet(shell):
    rows = stream(["a", "b"], 600)
    for i in range(5, 600, 9):
        rows[i]["cpu"] = None
    done = shell.run("watch", "--by", "host", "--time", "ts", *SETTINGS, stdin=as_ndjson(rows))
    expected = fleet_results(Fleet(2, on_error="skip", **SMALL), rows)
    for row in expected:
        if np.isnan(row["anomaly_score"]):
            row["anomaly_score"] = row["surprise"] = None
    assert results_of(lines_of(done.stdout)) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "name", "--shingle", "3"), "With --by, --shingle 3 is not possible."),
        (("--by", "name", "--preset", "series"), "With --by, --preset series is not possible."),
        (("--by", "name", "--no-learn-anomalies"), "With --by, --no-learn-anomalies is not possible."),
        (("--by", "name", "--missing", "median"), "With --by, --missing median is not possible: a row with"),
        (("--by", "name", "--categorical", "id"), "all features must be numbers, so --categorical id is not possible"),
        (("--by", "name", "--explain"), "With --by, --explain is not possible: only incidents are explained"),
        (("--by", "name", "--silence", "3s"), "With --by, --silence is not possible: the silence of a single key"),
        (("--by", "hots"), "There is no column 'hots'; the columns are 'id', 'name'"),
        (("--by", "name", "--features", "name,a"), "The column 'name' cannot be both a key and a feature."),
        (("--by", "id", "--features", "name,a"), "With --by, all features must be numbers, but column 'name' is 'n0'"),
        (("--by", "name", "--max-memory", "2"), "--max-memory must be a number and KB, MB, GB or TB, such as 500MB"),
        (("--by", "name", "--max-memory", "2KB"), "--max-memory 2KB is too small: one key needs "),
        (("--max-memory", "2GB"), "--max-memory needs --by"),
        (("--by", "name", "--side", "d=high"), "--side: there is no feature 'd' among id, a, b, c."),
    ],
)
def test_impossible_options_are_errors(shell, arguments, message):
    assert message in shell.fails("watch", "-q", "data.csv", *arguments)


def test_a_key_column_must_not_have_the_name_of_a_result(shell):
    assert "'event' has the name of a field of incidents" in shell.fails(
        "watch", "--by", "event", stdin="event,a\nx,1\n"
    )
    assert "own column 'is_borrowed'" in shell.fails("watch", "--by", "h", stdin="h,is_borrowed\nx,1\n")


def test_the_output_can_be_watched_again(shell):
    rows = stream(["a", "b"], 200)
    arguments = ("watch", "--by", "host", "--time", "ts", *SETTINGS)
    once = shell.run(*arguments, stdin=as_ndjson(rows))
    assert shell.run(*arguments, stdin=once.stdout).stdout == once.stdout


def test_a_model_file_must_match_the_options(shell):
    shell.run("watch", "data.csv", "--model", "one.imf", "--features", "a,b", *SETTINGS)
    message = shell.fails("watch", "-q", "data.csv", "--by", "name", "--model", "one.imf")
    assert "one.imf was saved without --by: leave out --by, or choose another model file." in message
    shell.write("broken.imf", "nothing")
    assert "broken.imf" in shell.fails("watch", "-q", "data.csv", "--by", "name", "--model", "broken.imf")
    shell.run("watch", "data.csv", "--by", "name", "--model", "many.imf", "--features", "a,b", *SETTINGS)
    is_fleet = "many.imf is a fleet (one detector per key): only imondrian watch --by"
    for arguments in (
        ("watch", "-q", "data.csv", "--model", "many.imf"),
        ("score", "many.imf", "data.csv"),
        ("explain", "many.imf", "data.csv"),
        ("plot", "scores", "data.csv", "--model", "many.imf"),
    ):
        assert is_fleet in shell.fails(*arguments)
    watch = ("watch", "-q", "data.csv", "--model", "many.imf")
    assert "many.imf was created with --by name, not --by id." in shell.fails(*watch, "--by", "id")
    assert "many.imf was created with --trees 8; --trees 9 is not" in shell.fails(
        *watch, "--by", "name", "--trees", "9"
    )
    message = shell.fails(*watch, "--by", "name", "--features", "a,c")
    assert "many.imf was created with the features a, b." in message
    assert "--max-memory 1KB is too small" in shell.fails(*watch, "--by", "name", "--max-memory", "1KB")
    done = shell.run("watch", "data.csv", "--by", "name", "--model", "many.imf", "--threshold", "0.01", "--gap", "9")
    assert "many.imf: --threshold 0.01 from now on (before: 0.001)." in done.stderr
    assert "many.imf: --gap 9 from now on (before: 64)." in done.stderr
    with Fleet.load(shell.folder / "many.imf") as fleet:
        assert (fleet.threshold, fleet.rules.gap, fleet.n_rows) == (0.01, 9, 800)
        assert "another process or fleet is using it" in shell.run(*watch, "--by", "name", check=2).stderr


def test_a_fleet_from_python_can_be_resumed(shell):
    rows = stream(["a", "b"], 400)
    fleet = Fleet(2, **SMALL)
    fleet_results(fleet, rows[:200])
    imondrian.save(fleet, shell.folder / "m.imf")
    expected = fleet_results(fleet, rows[200:])
    text = as_ndjson([*rows[200:], {"host": "a", "cpu": None, "mem": 1.0}])
    done = shell.run("watch", "--by", "host", "--time", "ts", "--model", "m.imf", stdin=text)
    lines = lines_of(done.stdout)
    assert results_of(lines[:-1]) == expected
    assert lines[0]["row"] == 201
    assert lines[-1]["error"] == "column 'cpu': the value is missing."


def test_save_and_load_accept_fleets(tmp_path):
    path = tmp_path / "m.imf"
    fleet = Fleet(1, **SMALL)
    fleet.process_many(["a", 3, "a"], [[1.0], [2.0], [3.0]])
    imondrian.save(fleet, path)
    with imondrian.load(path) as loaded:
        assert isinstance(loaded, Fleet)
        assert set(loaded.keys()) == {"a", 3}
        assert loaded.process("a", [9.0]) == fleet.process("a", [9.0])
        imondrian.save(loaded, path)
    with imondrian.load(path) as loaded:
        assert loaded.n_rows == 4
    with pytest.raises(InvalidInputError, match="use its method save"):
        imondrian.model_files.to_bytes(fleet)


def test_a_command_runs_for_each_incident(shell):
    rows = stream(["a", "b"], 800)
    arguments = ("watch", "--by", "host", "--time", "ts", "--incidents", *SETTINGS)
    done = shell.run(*arguments, "--exec", "sh -c 'cat >> events.ndjson'", stdin=as_csv(rows))
    assert shell.text("events.ndjson") == done.stdout
    done = shell.run(*arguments, "--exec", "false", stdin=as_csv(rows))
    event = lines_of(done.stdout)[0]
    assert f"--exec, incident 0 of host '{event['host']}' (anomalies) opened: the command ended" in done.stderr


@pytest.mark.parametrize(
    "value", [3, [3], [["a"]], [["a", [[1, 2]]]], [[None, []]], [["a", [["x", 1, None]]]], [["a", [[1, -1, None]]]]]
)
def test_damaged_rows_of_incidents_are_errors(value):
    with pytest.raises(InvalidInputError, match=r"m\.imf: the stored rows of incidents are invalid"):
        restored_alarms(value, "m.imf")


def test_remembered_rows_survive_the_model_file():
    alarms = {"a": {3: StreamRow(17, "t"), 5: StreamRow(20, None)}, 7: {0: StreamRow(1, 2.5)}}
    assert restored_alarms(json.loads(json.dumps(stored_alarms(alarms))), "m.imf") == alarms
    assert restored_alarms(None, "m.imf") == {}


def test_keys_of_several_columns_can_be_taken_apart():
    record = {"a": 'x", "y', "b": 3}
    key = key_of(record, ["a", "b"])
    assert members_of_key(key, ["a", "b"]) == record
    assert members_of_key("from Python", ["a", "b"]) == {"a,b": "from Python"}


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("1B", 1), ("2kb", 2000), ("1.5 GB", 1_500_000_000), ("3TB", 3 * 10**12)]
)
def test_sizes_are_parsed(text, n_bytes):
    assert parse_bytes(text, "--max-memory") == n_bytes


@pytest.mark.parametrize("text", ["", "GB", "1", "-1MB", "1e3MB", "1 XB", "1mib"])
def test_other_sizes_are_errors(text):
    with pytest.raises(InvalidInputError, match="--max-memory must be a number and KB, MB, GB or TB"):
        parse_bytes(text, "--max-memory")


def test_a_store_without_a_fleet_is_used_for_a_new_one(shell):
    """A run that is killed before its first save leaves such a file."""
    Fleet(1, store=shell.folder / "fleet.imf", **SMALL).close()
    shell.write("data.csv", "host,load\n" + "".join(f"a,{i % 5}\n" for i in range(20)))
    done = shell.run("watch", "data.csv", "--by", "host", "--model", "fleet.imf", *SETTINGS)
    assert "ended before it saved" in done.stderr
    assert Fleet.load(shell.folder / "fleet.imf").n_rows == 20


@pytest.mark.parametrize("options", [(), ("--by", "x"), ("--time", "x")])
def test_half_of_a_surrogate_pair_in_the_first_row_is_text(shell, options):
    rows = '{"x": "\\ud800", "y": 1}\n{"x": "b", "y": 1}\n'
    assert len(lines_of(shell.run("watch", *options, *SETTINGS, stdin=rows).stdout)) == 2
