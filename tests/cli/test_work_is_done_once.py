"""detect and explain parse each cell, score each row and explain each row at most once, whatever they write."""

from collections import Counter

import pytest
from click.testing import CliRunner

from imondrian import MondrianForest
from imondrian.cli.app import app
from imondrian.cli.table_rows import Rows
from imondrian.tables import cells, column_contents, feature_columns

N_ROWS = 400


@pytest.fixture
def work(monkeypatch, tmp_path, table_text):
    """Count the cells parsed, by column, and the rows scored and explained, by content."""
    work = {"parsed": Counter(), "scored": Counter(), "explained": Counter()}
    parse = cells.parse_column

    def counted_parse(column):
        work["parsed"][column.name] += column.len()
        return parse(column)

    def counted(name, method):
        def call(self, X, *arguments):
            work[name].update(row.tobytes() for row in X)
            return method(self, X, *arguments)

        return call

    for module in (column_contents, feature_columns):
        monkeypatch.setattr(module, "parse_column", counted_parse)
    monkeypatch.setattr(MondrianForest, "score", counted("scored", MondrianForest.score))
    monkeypatch.setattr(MondrianForest, "explain", counted("explained", MondrianForest.explain))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(table_text)
    return work


def run(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.exception


@pytest.mark.parametrize("threshold", ["0.05", "top 5%", "kmeans", "auto", "0.5"])
def test_detect_does_each_piece_of_work_once(work, threshold):
    outputs = ("-o", "out.csv", "--report", "report.html", "--save", "model.imf")
    run("detect", "data.csv", "--trees", "5", "--threshold", threshold, *outputs, "-q")
    assert work["parsed"] == dict.fromkeys(["id", "name", "a", "b", "c"], N_ROWS)
    assert len(work["scored"]) == N_ROWS
    assert set(work["scored"].values()) == {1}
    assert set(work["explained"].values()) == {1}
    assert len(work["explained"]) >= 10


def test_explain_does_each_piece_of_work_once(work):
    run("fit", "data.csv", "--trees", "5", "--save", "model.imf", "-q")
    for counts in work.values():
        counts.clear()
    run("explain", "model.imf", "data.csv", "--rows", "3,100", "-o", "parts.csv", "-q")
    assert work["parsed"] == dict.fromkeys("abc", N_ROWS)
    for counts in (work["scored"], work["explained"]):
        assert len(counts) == N_ROWS
        assert set(counts.values()) == {1}


def test_the_report_of_a_wide_table_looks_for_its_categories_a_few_times(tmp_path, monkeypatch):
    n_calls, find = 0, Rows.categorical.fget

    def counted(rows):
        nonlocal n_calls
        n_calls += 1
        return find(rows)

    monkeypatch.setattr(Rows, "categorical", property(counted))
    monkeypatch.chdir(tmp_path)
    names = [f"c{j}" for j in range(60)]
    rows = [",".join(str(i * j % 7) for j in range(60)) for i in range(30)]
    (tmp_path / "wide.csv").write_text("\n".join([",".join(names), *rows]))
    run("detect", "wide.csv", "--trees", "5", "--report", "report.html", "-q")
    assert 0 < n_calls < 60  # 3,600 if it were looked up for each pair of columns
