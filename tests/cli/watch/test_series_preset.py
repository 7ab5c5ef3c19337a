"""With its default settings, `imondrian watch` finds labelled anomalies of real series with few false incidents.

The targets are those of the project for the Numenta Anomaly Benchmark: of 33 windows in 14 real series at least 18 are
found, with at most 30 false incidents; the five series without anomalies have at most 3 incidents.
"""

import csv
import gzip
import json

import pytest

from imondrian import StreamDetector
from tests.cli.conftest import Shell

REAL, ORDINARY = ("realKnownCause", "realTraffic"), ("artificialNoAnomaly",)
BY_COMMAND = {"speed_7578", "speed_t4013", "TravelTime_451", "ec2_request_latency_system_failure", "art_noisy"}


@pytest.fixture(scope="module")
def series_folder(data_folder):
    folder = data_folder / "series" / "nab"
    if not folder.is_dir():
        pytest.skip("needs the series in the folder IMONDRIAN_DATA")
    return folder


def alarms_by_incident(path, folder, preset):
    """Watch a series; return the times of the alarms of each incident."""
    with gzip.open(path, "rt") as file:
        text = file.read()
    if path.name.removesuffix(".csv.gz") in BY_COMMAND:
        return _alarms_by_command(text, folder, preset)
    return _alarms_by_detector(list(csv.DictReader(text.splitlines())), preset)


def _alarms_by_command(text, folder, preset):
    shell = Shell(folder)
    options = ("--features", "value", "--time", "timestamp", "--incidents", "--scored", "scored.ndjson", "-q")
    options += ("--preset", preset)
    lines = [json.loads(line) for line in shell.run("watch", *options, stdin=text).stdout.splitlines()]
    scored = [json.loads(line) for line in shell.text("scored.ndjson").splitlines()]
    (folder / "scored.ndjson").unlink()
    latest = {line["incident"]: line for line in lines}  # one that is open at the end has only its opening
    alarms = {number: [] for number in latest}
    for row in scored:
        for number, line in latest.items():
            is_open = line["event"] == "opened" and row["incident"] == number
            if row["is_anomaly"] and (line["first_row"] <= row["row"] <= line["last_row"] or is_open):
                alarms[number].append(row["timestamp"])
    return list(alarms.values())


def _alarms_by_detector(rows, preset):
    detector = StreamDetector(1, preset=preset)
    times = [row["timestamp"] for row in rows] if preset == "series" else None
    results = detector.process_many([{"value": float(row["value"])} for row in rows], times)
    assert detector.n_incidents == len(detector.incidents)
    return [
        [rows[i]["timestamp"] for i in range(incident.first, incident.last + 1) if results.is_anomaly[i]]
        for incident in detector.incidents
    ]


def count(series_folder, groups, folder, preset="practice"):
    """Return the number of windows, of windows that were found, and of false incidents."""
    windows_of = json.loads((series_folder / "windows.json").read_text())
    n_windows = n_found = n_false = 0
    for group in groups:
        for path in sorted((series_folder / group).glob("*.csv.gz")):
            windows = windows_of[f"{group}/{path.name.removesuffix('.csv.gz')}"]
            incidents = alarms_by_incident(path, folder, preset)
            hits = [
                {j for j, (start, end) in enumerate(windows) if any(start[:19] <= time <= end[:19] for time in alarms)}
                for alarms in incidents
            ]
            n_windows += len(windows)
            n_found += len(set().union(*hits))
            n_false += sum(not hit for hit in hits)
    return n_windows, n_found, n_false


def test_real_series_have_few_false_incidents_and_most_windows_are_found(series_folder, tmp_path):
    n_windows, n_found, n_false = count(series_folder, REAL, tmp_path)
    assert n_windows == 33
    assert n_found >= 18, (n_found, n_false)
    assert n_false <= 30, (n_found, n_false)


def test_series_without_anomalies_have_almost_no_incidents(series_folder, tmp_path):
    n_windows, _, n_false = count(series_folder, ORDINARY, tmp_path)
    assert n_windows == 0
    assert n_false <= 3


def test_the_preset_for_series_finds_more_windows_and_raises_no_more_false_incidents(series_folder, tmp_path):
    n_windows, n_found, n_false = count(series_folder, REAL, tmp_path, "series")
    assert n_windows == 33
    assert n_found >= 20, (n_found, n_false)
    assert n_false <= 30, (n_found, n_false)


def test_the_preset_for_series_raises_no_incident_without_anomalies(series_folder, tmp_path):
    assert count(series_folder, ORDINARY, tmp_path, "series")[2] <= 1
