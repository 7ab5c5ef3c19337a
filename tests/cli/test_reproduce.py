"""`imondrian reproduce` as a process: a short run of all experiments, and errors in the input."""

import csv
import json
import signal
import time

import pytest
from click.testing import CliRunner

from imondrian.cli.app import app
from tests.cli.conftest import PATIENCE, Shell

SHORT = ("--seeds", "1", "--folds", "2", "--budget", "2")


@pytest.fixture(scope="module")
def page(tmp_path_factory, data_folder):
    """All experiments on small data sets: two folds, one seed."""
    shell = Shell(tmp_path_factory.mktemp("reproduce"))
    sets = "wine,ionosphere,blob"
    shell.done = shell.run("reproduce", "all", "--data", data_folder, "--datasets", sets, *SHORT, "-o", "out")
    return shell


def test_the_page_has_every_table_and_figure(page):
    text = page.text("out/reproduction.md")
    for title in ("Table I:", "Table II:", "Table III:", "Figure 1", "Figure 2", "Beyond the paper", "Differences"):
        assert f"## {title}" in text
    for method in ("iMForest", "iForest", "LOF", "one-class SVM", "incremental LOF", "osPCA1", "osPCA2", "INNE"):
        assert f"| {method} |" in text or f"### {method}" in text


def test_results_are_left_as_csv_with_their_circumstances_and_as_figures(page):
    folder = page.folder / "out" / "reproduction"
    for name in ("batch", "online", "quality", "synthetic", "claims", "batch_checks", "online_checks"):
        rows = list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))
        circumstances = json.loads((folder / f"{name}.json").read_text())
        assert rows or name.endswith("checks")
        assert {"settings", "machine", "versions", "seconds", "date"} <= set(circumstances)
    for name in ("stages", "quality", "batch_plane", "online_plane"):
        assert (folder / f"{name}.png").read_bytes()[1:4] == b"PNG"
    assert not (folder / "long_stream.csv").exists()  # cicids was not asked for


def test_methods_sets_folds_and_stages_are_those_asked_for(page):
    folder = page.folder / "out" / "reproduction"
    batch = list(csv.DictReader((folder / "batch.csv").read_text().splitlines()))
    online = list(csv.DictReader((folder / "online.csv").read_text().splitlines()))
    assert {row["set"] for row in batch} == {"wine", "ionosphere"}
    assert {row["fold"] for row in batch if row["method"] == "imforest"} == {"1", "2"}
    assert {row["part"] for row in online} == {"1", "2", "3", "4", "5"}


def test_what_is_done_is_said_on_standard_error_and_where_the_page_is_on_standard_output(page):
    assert page.done.stdout == "out/reproduction.md\n"
    assert "batch: wine, LOF" in page.done.stderr


def test_one_experiment_renews_its_part_of_the_page(page, data_folder):
    before = page.text("out/reproduction.md")
    chosen = ("--datasets", "wine", "--methods", "lof", "--folds", "2")
    done = page.run("reproduce", "batch", "--data", data_folder, *chosen, "-o", "out", "--json")
    after = page.text("out/reproduction.md")
    assert json.loads(done.stdout)["page"] == "out/reproduction.md"
    assert done.stderr == ""
    part = after[after.index("## Table II:") : after.index("## Table III:")]
    assert "| LOF |" in part
    assert "| iForest |" not in part
    assert after[after.index("## Table III:") : after.index("## Figure 1")] in before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("batch", "--datasets", "nowhere"), "There is no data set 'nowhere' here; the names are"),
        (("all", "--data", "missing"), "missing"),
    ],
)
def test_wrong_input_is_one_line(shell, arguments, complaint):
    assert complaint in shell.fails("reproduce", "-o", "out", *arguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
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
def test_wrong_input_is_noticed_before_anything_is_run(tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["reproduce", "-o", "out", "--quiet", *arguments])
    assert complaint in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments", [("nothing",), (), ("batch", "--folds", "1"), ("batch", "--seeds", "0"), ("batch", "--budget", "-1")]
)
def test_wrong_options_are_refused(arguments):
    assert CliRunner().invoke(app, ["reproduce", *arguments]).exit_code == 2


def test_an_interrupted_experiment_leaves_what_was_there_before(shell, data_folder):
    asked = ("--data", data_folder, "--datasets", "satellite", "--methods", "svm", "--jobs", "2", "-o", "out")
    process = shell.start("reproduce", "batch", *asked)
    assert process.stderr.readline().endswith(b"data: satellite\n")
    time.sleep(3.0)  # processes that are just starting print errors of their own
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=PATIENCE)  # the measurement would take minutes
    assert (process.returncode, complaint) == (130, b"imondrian: interrupted\n")
    assert not list((shell.folder / "out").glob("**/*.*"))
