"""Run detect, fit, score, explain and info as processes: results, files, exit codes and errors."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

import imondrian
from tests.cli.conftest import COMMAND, TIMEOUT

ROW_NUMBERS = "consecutive or evenly spaced integers, such as row numbers"
IDS = "an id, such as 'n0': 400 different values in 400 rows"


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_detect_finds_and_explains_the_anomalies(shell):
    done = shell.run("detect", "data.csv", "-o", "scored.csv", "--report", "report.html", "--save", "model.imf")
    assert f"id ({ROW_NUMBERS})" in done.stdout
    assert f"name ({IDS})" in done.stdout
    shown = done.stdout[done.stdout.index("Rows with the highest scores") :].splitlines()[2:]
    lines = [line.split() for line in shown if not line.startswith(" " * 7)]  # long explanations are folded
    assert len(lines) == 10
    first, second = lines[:2]
    assert {first[0], second[0]} == {"100", "300"}
    assert float(first[2]) > 3.0
    assert first[3] == second[3] == "yes"
    assert "surprise above 3: about 1 in 1,000 ordinary rows" in done.stdout
    assert "anomalies  2 (0.5% of the scored rows)" in done.stdout
    assert "b = 15 (high; expected" in done.stdout
    assert "c = -15 (low; expected" in done.stdout
    rows = rows_of(shell.text("scored.csv"))
    assert len(rows) == 400
    assert rows[99]["is_anomaly"] == "true"
    assert rows[99]["explanation"].startswith("b = 15 (high")
    assert [i for i, row in enumerate(rows) if row["is_anomaly"] == "true"] == [99, 299]
    assert [list(row.values())[:5] for row in rows] == [
        line.split(",") for line in shell.text("data.csv").splitlines()[1:]
    ]
    page = shell.text("report.html")
    assert "Anomalies in data.csv" in page
    assert page.count("<img") == 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    model = imondrian.load(shell.folder / "model.imf")
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    points = pl.DataFrame([[float(row[name]) for name in "abc"] for row in rows], schema=list("abc"), orient="row")
    assert np.allclose(-model.score_samples(points), [float(row["anomaly_score"]) for row in rows])
    assert np.allclose(model.surprise_samples(points), [float(row["surprise"]) for row in rows])
    assert model.contamination == "auto"
    assert '<th class="number">Surprise</th>' in page
    assert list(rows[0])[5:] == ["anomaly_score", "surprise", "is_anomaly", "explanation"]


THRESHOLDS = {
    "0.01": ("surprise 2", "surprise above 2: about 1 in 100 ordinary rows"),
    "surprise 2.5": ("surprise 2.5", "surprise above 2.5: about 1 in 316 ordinary rows"),
    "1e-20": ("surprise 20", "surprise above 20: about 1 in 1e+20 ordinary rows"),
    "top 5%": ("top 5%", "the top 5% of the rows that the model was fitted on"),
    "kmeans": ("kmeans", "midpoint of two clusters of scores"),
    "0.5": ("score 0.5", "score of an average point"),
    "score 0.6": ("score 0.6", "a fixed score"),
    "auto": ("auto", "surprise above 3: about 1 in 1,000 ordinary rows"),
}


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_every_threshold_is_applied_described_and_saved(shell, threshold):
    contamination, rule = THRESHOLDS[threshold]
    outputs = ("-o", "out.parquet", "--save", "model.imf", "--report", "report.html", "--trees", "20")
    summary = json.loads(shell.run("detect", "data.csv", "--threshold", threshold, *outputs, "--json").stdout)
    assert summary["rule"] == rule
    table, model = pl.read_parquet(shell.folder / "out.parquet"), imondrian.load(shell.folder / "model.imf")
    assert model.contamination == contamination
    assert -model.offset_ == summary["threshold"]
    assert table["is_anomaly"].to_list() == (table["anomaly_score"] > summary["threshold"]).to_list()
    assert table["is_anomaly"].sum() == summary["n_anomalies"]
    assert np.allclose(model.surprise_samples(table[["a", "b", "c"]]), table["surprise"])
    assert summary["highest"][0]["surprise"] == table["surprise"].max()
    if contamination.startswith("surprise"):
        level = float(contamination.split()[1])
        assert table["is_anomaly"].to_list() == (table["surprise"] > level).to_list()
    if threshold == "top 5%":
        assert summary["n_anomalies"] == 20
    assert rule in shell.text("report.html")
    facts = json.loads(shell.run("info", "model.imf", "--json").stdout)
    assert (facts["rule"], facts["threshold"]) == (rule, summary["threshold"])
    shell.run("plot", "scores", "data.csv", "--model", "model.imf", "-o", "scores.png")
    again = json.loads(shell.run("score", "model.imf", "data.csv", "-o", "again.parquet", "--json").stdout)
    assert (again["rule"], again["n_anomalies"]) == (rule, summary["n_anomalies"])
    assert pl.read_parquet(shell.folder / "again.parquet").equals(table)


def test_a_table_without_anomalies_has_none_and_its_oddest_rows_are_listed(shell):
    X = np.random.default_rng(0).normal(size=(500, 2))
    pl.DataFrame(X, schema=["x", "y"]).write_csv(shell.folder / "clean.csv")
    text = shell.run("detect", "clean.csv", "--report", "report.html").stdout
    hint = 'to flag a share of the rows, fit with --threshold "top 5%".'
    assert f"anomalies  none. The rows below stand out most; {hint}" in " ".join(text.split()).replace(
        "anomalies none", "anomalies  none"
    )
    assert len(text[text.index("Rows with the highest scores") :].splitlines()) >= 12
    page = shell.text("report.html")
    assert "No row is an anomaly." in page
    assert "top 5%" in page
    shell.run("detect", "clean.csv", "--fail-on-anomaly", "-q")
    summary = json.loads(shell.run("detect", "clean.csv", "--threshold", "top 5%", "--json").stdout)
    assert summary["n_anomalies"] == 25


def test_fit_writes_the_same_model_file_as_the_estimator(shell):
    shell.run("fit", "data.csv", "--features", "a,b,c", "--save", "ours.imf", "--jobs", "1", "-q")
    table = pl.read_csv(shell.folder / "data.csv")[["a", "b", "c"]]
    parameters = {
        "kind": "size",
        "scale": "std",
        "contamination": "auto",
        "max_samples": 256,
        "n_jobs": 1,
        "categorical": [],
    }
    model = imondrian.IsolationMondrianForest(random_state=0, **parameters).fit(table)
    imondrian.save(model, shell.folder / "theirs.imf")
    assert (shell.folder / "ours.imf").read_bytes() == (shell.folder / "theirs.imf").read_bytes()


def test_fit_and_score_give_the_same_results_as_detect(shell):
    shell.run("detect", "data.csv", "-o", "at_once.csv", "--save", "one.imf", "-q")
    shell.run("fit", "data.csv", "--save", "two.imf", "-q")
    assert (shell.folder / "one.imf").read_bytes() == (shell.folder / "two.imf").read_bytes()
    done = shell.run("score", "two.imf", "data.csv", "-q")
    assert done.stdout == shell.text("at_once.csv")
    assert done.stderr == ""


@pytest.mark.parametrize("extension", ["csv", "tsv", "ndjson", "parquet"])
def test_every_format_can_be_read_and_written(fitted, tmp_path, extension):
    frame = pl.read_csv(fitted.folder / "data.csv")
    source, target = tmp_path / f"in.{extension}", tmp_path / f"out.{extension}"
    write = {
        "csv": frame.write_csv,
        "tsv": lambda path: frame.write_csv(path, separator="\t"),
        "ndjson": frame.write_ndjson,
        "parquet": frame.write_parquet,
    }[extension]
    write(source)
    summary = json.loads(fitted.run("score", "model.imf", source, "-o", target, "--json").stdout)
    assert summary["n_rows"] == 400
    assert {summary["highest"][0]["row"], summary["highest"][1]["row"]} == {100, 300}
    read = {
        "csv": pl.read_csv,
        "tsv": lambda path: pl.read_csv(path, separator="\t"),
        "ndjson": pl.read_ndjson,
        "parquet": pl.read_parquet,
    }[extension](target)
    assert read["a"].to_list() == frame["a"].to_list()
    assert read["anomaly_score"].arg_max() in {99, 299}


def test_pipes_can_be_read_and_written(fitted):
    text = fitted.text("data.csv")
    plain = fitted.run("score", "model.imf", "-", stdin=text)
    assert "standard input" in plain.stderr
    compressed = fitted.run("score", "model.imf", "-", stdin=gzip.compress(text.encode()))
    assert compressed.stdout.decode() == plain.stdout
    frame = pl.read_csv(io.StringIO(text))
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    from_parquet = rows_of(fitted.run("score", "model.imf", "-", stdin=buffer.getvalue()).stdout.decode())
    assert [row["anomaly_score"] for row in from_parquet] == [row["anomaly_score"] for row in rows_of(plain.stdout)]


def test_a_closed_output_pipe_is_not_an_error(fitted):
    pipe = f"{' '.join(COMMAND)} score model.imf data.csv -q | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipe], cwd=fitted.folder, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert done.stdout.startswith(b"id,name,a,b,c,anomaly_score")
    assert done.stderr == b""


def test_a_closed_pipe_for_the_summary_gives_exit_code_0(fitted):
    pipe = f"{' '.join(COMMAND)} explain model.imf data.csv --top 400 | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", pipe], cwd=fitted.folder, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


def test_explain_divides_the_score_among_the_features(fitted, tmp_path):
    done = fitted.run("explain", "model.imf", "data.csv", "--rows", "100,7", "-o", tmp_path / "parts.csv", "--json")
    rows = json.loads(done.stdout)["rows"]
    assert [row["row"] for row in rows] == [7, 100]
    assert rows[1]["explanation"][0]["feature"] == "b"
    assert rows[1]["explanation"][0]["is_high"]
    parts = pl.read_csv(tmp_path / "parts.csv")
    assert parts.columns == ["row", "anomaly_score", "surprise", "a", "b", "c"]
    assert [row["surprise"] for row in rows] == pytest.approx([parts["surprise"][6], parts["surprise"][99]])
    sums = parts.select(pl.sum_horizontal(pl.col("a", "b", "c").abs()))["a"]
    assert np.allclose(sums, parts["anomaly_score"])
    lines = fitted.run("explain", "model.imf", "data.csv", "--top", "2").stdout.splitlines()
    assert len(lines) == 3
    assert "b = 15 (high" in lines[1] + lines[2]


def test_info_shows_the_content_of_a_model_file(fitted):
    facts = json.loads(fitted.run("info", "model.imf", "--json").stdout)
    assert facts["type"] == "estimator"
    assert facts["features"] == ["a", "b", "c"]
    assert facts["points"] == 400
    assert facts["parameters"]["contamination"] == "surprise 2"
    assert facts["rule"] == "surprise above 2: about 1 in 100 ordinary rows"
    assert "estimator" in fitted.run("info", "model.imf").stdout


def test_info_shows_an_estimator_that_has_forgotten_all_its_points(shell):
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = imondrian.IsolationMondrianForest(n_estimators=5, contamination=0.1).fit(X).forget(X)
    imondrian.save(model, shell.folder / "model.imf")
    facts = json.loads(shell.run("info", "model.imf", "--json").stdout)
    assert (facts["type"], facts["points"], facts["threshold"]) == ("estimator", 0, None)
    assert "threshold        none" in shell.run("info", "model.imf").stdout


def test_info_says_that_a_share_on_a_stream_is_one_of_the_latest_rows(shell):
    imondrian.save(imondrian.StreamDetector(2, window=16, threshold="top 5%"), shell.folder / "state.imf")
    assert json.loads(shell.run("info", "state.imf", "--json").stdout)["rule"] == "the top 5% of the latest rows"


def test_fail_on_anomaly_gives_exit_code_1_if_there_are_anomalies(shell):
    shell.run("detect", "data.csv", "--fail-on-anomaly", "-q", check=1)
    shell.write("flat.csv", "a,b\n" + "1,2\n2,1\n" * 10)
    shell.run("detect", "flat.csv", "--fail-on-anomaly", "-q", check=0)


def test_quiet_prints_nothing_and_json_prints_one_object(shell):
    done = shell.run("detect", "data.csv", "-q")
    assert done.stdout == done.stderr == ""
    done = shell.run("detect", "data.csv", "--json", "--preset", "paper")
    assert done.stderr == ""
    summary = json.loads(done.stdout)
    assert summary["left_out"] == {"id": ROW_NUMBERS, "name": IDS}
    assert summary["rule"] == "midpoint of two clusters of scores"


def test_columns_can_be_chosen(shell):
    summary = json.loads(shell.run("detect", "data.csv", "--features", "a,c", "--json").stdout)
    assert summary["features"] == ["a", "c"]
    assert summary["highest"][0]["row"] == 300
    summary = json.loads(
        shell.run("detect", "data.csv", "--ignore", "c", "--ignore", "a", "--time", "id", "--json").stdout
    )
    assert summary["features"] == ["b"]
    assert summary["highest"][0]["time"] == "100"


def test_missing_values_fail_are_dropped_or_are_replaced_by_the_median(shell):
    text = shell.text("data.csv").splitlines()
    fields = text[3].split(",")
    text[3] = ",".join([*fields[:2], "NA", *fields[3:]])
    shell.write("gaps.csv", "\n".join(text))
    message = shell.fails("detect", "gaps.csv", "--missing", "fail")
    assert "gaps.csv: row 3, column 'a': the value is missing" in message
    shell.run("detect", "gaps.csv", "--missing", "drop", "-o", "out.csv", "--save", "m.imf", "-q")
    rows = rows_of(shell.text("out.csv"))
    assert len(rows) == 400
    assert rows[2]["anomaly_score"] == rows[2]["explanation"] == ""
    assert rows[2]["is_anomaly"] == "false"
    summary = json.loads(shell.run("detect", "gaps.csv", "-o", "out.csv", "--save", "filled.imf", "--json").stdout)
    assert summary["filled"] == {"a": 1}
    assert shell.run("score", "filled.imf", "gaps.csv", "-q").stdout == shell.text("out.csv")
    assert 0.0 < float(rows_of(shell.text("out.csv"))[2]["anomaly_score"]) < 1.0
    assert "row 3, column 'a'" in shell.fails("score", "m.imf", "gaps.csv")
    scored = rows_of(shell.run("score", "m.imf", "gaps.csv", "--missing", "median", "-q").stdout)
    assert 0.0 < float(scored[2]["anomaly_score"]) < 1.0


def test_bad_input_gives_a_one_line_error_and_leaves_no_files(shell):
    shell.write("empty.csv", "")
    shell.write("header.csv", "a,b\n")
    shell.write("text.csv", "a,b\nx,y\nz,w\n")
    shell.write("cell.csv", shell.text("data.csv").replace("15.000000", "fifteen", 1))
    shell.write("other.csv", "a,b\n1,2\n3,4\n")
    shell.run("fit", "data.csv", "--save", "model.imf", "-q")
    shell.write("broken.imf", "not a model")
    out = ("-o", "out.csv", "--report", "r.html", "--save", "m.imf")
    assert "none.csv: file not found" in shell.fails("detect", "none.csv", *out)
    assert "empty.csv is empty" in shell.fails("detect", "empty.csv", *out)
    assert "header.csv has no rows" in shell.fails("detect", "header.csv", *out)
    assert "text.csv: no column can be used as a feature (a: an id" in shell.fails("detect", "text.csv", *out)
    assert "cell.csv: row 100, column 'b': 'fifteen' is not a number" in shell.fails("detect", "cell.csv", *out)
    assert "cell.csv: row 100, column 'b': 'fifteen'" in shell.fails(
        "score", "model.imf", "cell.csv", "-o", "o.parquet"
    )
    assert "there is no column 'z'" in shell.fails("detect", "data.csv", "--features", "z")
    assert "model.imf was fitted on other features: there is no column 'c'" in shell.fails(
        "score", "model.imf", "other.csv"
    )
    assert "broken.imf" in shell.fails("score", "broken.imf", "data.csv")
    assert "none.imf: file not found" in shell.fails("info", "none.imf")
    for row in (401, 10**20):
        assert f"there is no row {row}; there are 400 rows" in shell.fails(
            "explain", "model.imf", "data.csv", "--rows", row
        )
    assert "nowhere" in shell.fails("detect", "data.csv", "-o", "nowhere/out.csv")
    assert "out.xls: the name of an output table must end in" in shell.fails("detect", "data.csv", "-o", "out.xls")
    assert "r.pdf: the name must end in .html" in shell.fails("detect", "data.csv", "--report", "r.pdf")
    for wrong in ("0.7", "top 5", "top 60%", "5%", "surprise", "mean"):
        for command in ("detect", "fit"):
            outputs = ("--save", "new.imf") if command == "fit" else ()
            error = shell.fails(command, "data.csv", "--threshold", wrong, *outputs)
            assert "--threshold must be 'auto', a probability below 0.5" in error
            assert wrong in error
    assert "--jobs must not be 0" in shell.fails("detect", "data.csv", "--jobs", "0")
    assert "cannot both go to standard output" in shell.fails("detect", "data.csv", "-o", "-", "--json")


def test_the_input_is_not_overwritten(shell):
    before = shell.text("data.csv")
    assert "data.csv is the input" in shell.fails("detect", "data.csv", "-o", "data.csv")
    assert shell.text("data.csv") == before


def test_a_cycle_of_symbolic_links_gives_a_one_line_error(shell):
    for extension in ("csv", "html", "imf", "png"):
        (shell.folder / f"loop.{extension}").symlink_to(f"loop.{extension}")
    (shell.folder / "loop").symlink_to("loop")
    for arguments in (
        ("detect", "data.csv", "-o", "loop.csv"),
        ("detect", "data.csv", "-o", "loop/out.csv"),
        ("detect", "data.csv", "--report", "loop.html"),
        ("detect", "data.csv", "--save", "loop.imf"),
        ("detect", "loop.csv", "-o", "out.csv"),
        ("fit", "data.csv", "--save", "loop.imf"),
        ("plot", "scores", "data.csv", "-o", "loop.png"),
        ("watch", "data.csv", "--model", "loop.imf"),
        ("score", "loop.imf", "data.csv", "-o", "out.csv"),
    ):
        assert "Too many levels of symbolic links" in shell.fails(*arguments)


def test_columns_of_the_user_are_not_overwritten(shell):
    shell.write("own.csv", "a,is_anomaly\n1,0\n2,1\n")
    assert "has its own column 'is_anomaly'" in shell.fails("detect", "own.csv", "-o", "out.csv", "-q")
    shell.run("detect", "own.csv", "-q")  # nothing is written
    shell.run("detect", "data.csv", "-o", "once.csv", "-q")
    shell.run("detect", "once.csv", "-o", "twice.csv", "-q")  # results of an earlier run are replaced
    assert shell.text("once.csv") == shell.text("twice.csv")


def test_a_batch_may_lack_a_column(fitted, tmp_path):
    full, lacking = '{"a": 1.0, "b": 2.0, "c": 3.0, "t": 1}\n', '{"a": 1.0, "b": 2.0}\n'
    (tmp_path / "t.ndjson").write_text(full * (2**23 // len(full) + 1) + lacking * (2**24 // len(lacking)))
    done = fitted.run(
        "score",
        "model.imf",
        tmp_path / "t.ndjson",
        "--missing",
        "drop",
        "--time",
        "t",
        "-o",
        tmp_path / "o.parquet",
        "--json",
    )
    summary = json.loads(done.stdout)
    assert 0 < summary["n_scored"] < summary["n_rows"]


def test_reports_and_models_cannot_be_written_to_standard_output(shell):
    assert "must end in .html" in shell.fails("detect", "data.csv", "--report", "-")
    assert "must end in .imf" in shell.fails("detect", "data.csv", "--save", "-")


def test_an_internal_error_has_its_own_exit_code(shell):
    program = (
        "import polars, imondrian.cli.commands.detect as d; d.read_rows = lambda *a: 1 / 0; "
        "import sys; sys.argv = ['imondrian', 'detect', 'data.csv']; from imondrian.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=shell.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 70
    assert done.stderr.startswith("imondrian: internal error: ZeroDivisionError: division by zero")
    assert done.stderr.count("\n") == 1


def test_closed_streams_and_ascii_terminals_are_handled(shell):
    shell.write("letters.csv", "é\x1b[31m,b\n1,2\n3,4\n")
    command = " ".join(COMMAND)
    for redirection, code in (("<&-", 2), (">&-", 0)):
        line = f"{command} detect {'-' if code else 'data.csv'} -q {redirection}"
        done = subprocess.run(["bash", "-c", line], cwd=shell.folder, capture_output=True, check=False, timeout=TIMEOUT)
        assert done.returncode == code, done.stderr
        assert b"Traceback" not in done.stderr
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [*COMMAND, "detect", "letters.csv"], cwd=shell.folder, capture_output=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert b"\\xe9" in done.stdout
    assert b"\x1b" not in done.stdout


def test_a_note_says_that_scores_of_few_rows_are_unreliable(shell):
    shell.write("few.csv", "a,b\n1,2\n3,4\n")
    assert "only 2 usable rows, so scores are unreliable" in shell.run("detect", "few.csv").stderr


def test_explain_notes_which_rows_have_missing_values(fitted, tmp_path):
    lines = fitted.text("data.csv").splitlines()[:3]
    (tmp_path / "gap.csv").write_text("\n".join([*lines, "3,n2,,1,1"]))
    done = fitted.run("explain", "model.imf", tmp_path / "gap.csv", "--missing", "drop", "--rows", "3,1")
    assert "row 3 has a missing value" in done.stderr


def test_an_error_leaves_the_old_output_unchanged(shell):
    shell.run("fit", "data.csv", "--save", "model.imf", "-q")
    shell.write("out.csv", "old")
    shell.write("cell.csv", shell.text("data.csv").replace("15.000000", "fifteen", 1))
    shell.fails("score", "model.imf", "cell.csv", "-o", "out.csv")
    assert shell.text("out.csv") == "old"


def test_a_model_without_feature_names_uses_the_numeric_columns_in_order(shell):
    rng = np.random.default_rng(0)
    imondrian.save(imondrian.MondrianForest(10).build(rng.normal(size=(50, 3))), shell.folder / "forest.imf")
    rows = rows_of(shell.run("score", "forest.imf", "data.csv", "-q").stdout)
    assert rows[99]["is_anomaly"] == "true"
    imondrian.save(imondrian.MondrianForest(10).build(rng.normal(size=(50, 2))), shell.folder / "two.imf")
    assert "two.imf has 2 unnamed features, but the table has 3 numeric columns: a, b, c" in shell.fails(
        "score", "two.imf", "data.csv"
    )
    assert json.loads(shell.run("info", "forest.imf", "--json").stdout)["type"] == "forest"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_removes_its_temporary_files(shell, number):
    shell.run("fit", "data.csv", "--save", "model.imf", "-q")
    before = set(os.listdir(shell.folder))  # noqa: PTH208
    process = shell.start("score", "model.imf", "-", "-o", "out.csv", "-q")
    header, *rows = shell.text("data.csv").splitlines(keepends=True)
    block = "".join(rows).encode()
    process.stdin.write(header.encode() + block * (2**24 // len(block)))  # two blocks, so that the first is scored
    process.stdin.flush()
    waited = 0
    while set(os.listdir(shell.folder)) == before and waited < TIMEOUT * 10:  # noqa: PTH208
        waited += 1
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    for _ in range(20):  # a hangup arrives twice, from the system and from the shell
        process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + number
    assert errors == b"imondrian: interrupted\n"
    assert set(os.listdir(shell.folder)) == before  # noqa: PTH208
