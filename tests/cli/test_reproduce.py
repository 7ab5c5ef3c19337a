"""`imondrian reproduce` as a process: a short run of all experiments, and errors in the input."""

import csv
import json
import signal
import time

import pytest
from click.testing import CliRunner

from imondrian.cli.app import app
from tests.cli.conftest import TIMEOUT, Shell

SHORT = ("--seeds", "1", "--folds", "2", "--budget", "2")


@pytest.fixture(scope="module")
def page(tmp_path_factory, data_folder):
    """All experiments on small data sets: two folds, one seed."""
    shell = Shell(tmp_path_factory.mktemp("reproduce"))
    names = "wine,ionosphere,blob"
    shell.done = shell.run("reproduce", "all", "--data", data_folder, "--datasets", names, *SHORT, "-o", "out")
    return shell


def test_the_page_has_every_table_and_figure(page):
    text = page.text("out/reproduction.md")
    for title in ("Table I:", "Table II:", "Table III:", "Figure 1", "Figure 2", "Beyond the paper", "Differences"):
        assert f"## {title}" in text
    for method in ("iMForest", "iForest", "LOF", "one-class SVM", "incremental LOF", "osPCA1", "osPCA2", "INNE"):
        assert f"| {method} |" in text or f"### {method}" in text


def test_results_are_written_as_csv_with_their_settings_and_as_figures(page):
    folder = page.folder / "out" / "reproduction"
    for name in ("batch", "online", "quality", "synthetic", "claims", "batch_checks", "online_checks"):
        rows = list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))
        metadata = json.loads((folder / f"{name}.json").read_text())
        assert rows or name.endswith("checks")
        assert {"settings", "machine", "versions", "seconds", "date"} <= set(metadata)
    for name in ("stages", "quality", "batch_plane", "online_plane"):
        assert (folder / f"{name}.png").read_bytes()[1:4] == b"PNG"
    assert not (folder / "long_stream.csv").exists()  # cicids was not requested


def test_only_the_requested_methods_data_sets_and_folds_are_run(page):
    folder = page.folder / "out" / "reproduction"
    batch = list(csv.DictReader((folder / "batch.csv").read_text().splitlines()))
    online = list(csv.DictReader((folder / "online.csv").read_text().splitlines()))
    assert {row["set"] for row in batch} == {"wine", "ionosphere"}
    assert {row["fold"] for row in batch if row["method"] == "imforest"} == {"1", "2"}
    assert {row["part"] for row in online} == {"1", "2", "3", "4", "5"}


def test_steps_go_to_standard_error_and_the_path_of_the_page_to_standard_output(page):
    assert page.done.stdout == "out/reproduction.md\n"
    assert "batch: wine, LOF" in page.done.stderr


def test_one_experiment_updates_its_part_of_the_page(page, data_folder):
    before = page.text("out/reproduction.md")
    options = ("--datasets", "wine", "--methods", "lof", "--folds", "2")
    done = page.run("reproduce", "batch", "--data", data_folder, *options, "-o", "out", "--json")
    after = page.text("out/reproduction.md")
    assert json.loads(done.stdout)["page"] == "out/reproduction.md"
    assert done.stderr == ""
    part = after[after.index("## Table II:") : after.index("## Table III:")]
    assert "| LOF |" in part
    assert "| iForest |" not in part
    assert after[after.index("## Table III:") : after.index("## Figure 1")] in before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("batch", "--datasets", "nowhere"), "There is no data set 'nowhere' here; the names are"),
        (("all", "--data", "missing"), "missing"),
    ],
)
def test_wrong_input_gives_a_one_line_error(shell, arguments, message):
    assert message in shell.fails("reproduce", "-o", "out", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("batch", "--methods", "ospca1"), "There is no method 'ospca1' here; the names are"),
        (("batch", "--datasets", "wine", "--data", "empty"), "empty"),
        (("synthetic", "--methods", "lof"), "There is no method 'lof' here; the names are none."),
        (("batch", "--jobs", "0"), "--jobs must not be 0"),
        (("batch", "--budget", "nan"), "--budget must be a finite number of seconds, but is nan"),
        (("online", "--datasets", "cicids", "--methods", "ospca1"), "nothing to run"),
        (("batch", "--datasets", "wbc", "--folds", "300"), "The data set wbc has 212 rows in its smaller class"),
        (("batch", "--datasets", "wbc", "-o", "file/out"), "Not a directory"),
    ],
)
def test_wrong_input_raises_before_anything_runs(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["reproduce", "-o", "out", "--quiet", *arguments])
    assert message in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments", [("nothing",), (), ("batch", "--folds", "1"), ("batch", "--seeds", "0"), ("batch", "--budget", "-1")]
)
def test_wrong_options_are_refused(arguments):
    assert CliRunner().invoke(app, ["reproduce", *arguments]).exit_code == 2


def test_an_interrupted_experiment_writes_no_files(shell, data_folder):
    options = ("--data", data_folder, "--datasets", "satellite", "--methods", "svm", "--jobs", "2", "-o", "out")
    process = shell.start("reproduce", "batch", *options)
    assert process.stderr.readline().endswith(b"data: satellite\n")
    time.sleep(3.0)  # processes that are just starting print errors of their own
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=TIMEOUT)  # the measurement would take minutes
    assert (process.returncode, message) == (130, b"imondrian: interrupted\n")
    assert not list((shell.folder / "out").glob("**/*.*"))
