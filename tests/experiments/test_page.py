"""The page reports what the records contain, and keeps the paper's results apart from measurements."""

import csv
import re
from pathlib import Path

import pytest

from imondrian.base.errors import DamagedFileError
from imondrian.experiments import difference_checks
from imondrian.experiments.comparison import compare
from imondrian.experiments.methods import BATCH, ONLINE
from imondrian.experiments.page.differences import explains
from imondrian.experiments.page.markdown import table
from imondrian.experiments.page.reproduction_page import write_page
from imondrian.experiments.paper_results import PUBLISHED, TABLE_1, TableCell
from imondrian.experiments.result_records import new_record, read_record, write_record

COLUMNS = ("set", "method", "seed", "part", "auc", "seconds")
SETTINGS = {"seeds": 2, "folds": 2, "budget": 1.0, "repeats": {"wine": dict.fromkeys([*BATCH, *ONLINE], 2)}}
REPOSITORY = Path(__file__).parents[2]


def rows_of(method, name, part, *aucs):
    return [
        {"set": name, "method": method, "seed": seed, "part": part, "auc": value, "seconds": 0.5}
        for seed, value in enumerate(aucs)
    ]


def write(folder, name, rows, columns=COLUMNS, settings=SETTINGS):
    (folder / "reproduction").mkdir(exist_ok=True)
    write_record(new_record(name, rows, settings, 1.0), columns, folder / "reproduction")


# -- published ---------------------------------------------------------------------------------------------------------


def test_the_published_tables_are_complete():
    batch = {cell for cell in PUBLISHED if cell.table == "batch"}
    online = {cell for cell in PUBLISHED if cell.table == "online"}
    assert len(batch) == 4 * 8 * 2
    assert len(online) == 5 * (2 * 8 + 2 * 7)  # CICIDS for two methods only
    assert {cell.method for cell in batch} == {name for name, method in BATCH.items() if not method.is_ours}
    assert {cell.method for cell in online} == {name for name, method in ONLINE.items() if not method.is_ours}
    assert {cell.set for cell in batch} == set(TABLE_1) - {"cicids"}


@pytest.mark.parametrize(
    ("cell", "figures"),
    [
        (TableCell("batch", "imforest", "smtp", "test"), (85.12, 14.25, 7.42, 0.11)),
        (TableCell("batch", "svm", "wbc", "train"), (49.40, 3.16, 0.03, 0.00)),
        (TableCell("online", "imforest", "cicids", "2"), (70.95, None, 1e4, None)),
        (TableCell("online", "incremental-lof", "smtp", "3"), (58.59, None, 3.93, None)),
        (TableCell("online", "ospca1", "pima", "1"), (80.37, None, 1.50, None)),
        (TableCell("online", "ospca2", "smtp", "5"), (68.82, None, 18678.0, None)),
    ],
)
def test_published_results_are_those_of_the_paper(cell, figures):
    assert tuple(PUBLISHED[cell]) == figures


# -- comparison --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auc", "differs"),
    [(63.63, False), (66.13, False), (66.14, True), (61.13, False), (61.12, True)],  # 63.63 +- 1.02: 2.5 points
)
def test_a_difference_is_more_than_the_tolerance(auc, differs):
    (entry,) = compare("batch", rows_of("imforest", "pima", "train", auc)).values()
    assert entry.differs == differs


def test_two_of_the_papers_deviations_are_tolerated():
    (entry,) = compare("batch", rows_of("iforest", "wine", "train", 79.56 + 21.0)).values()  # +- 10.59
    assert not entry.differs


def test_a_result_that_is_not_in_the_paper_never_differs():
    (entry,) = compare("batch", rows_of("size-std", "pima", "train", 1.0)).values()
    assert (entry.published, entry.differs, entry.difference) == (None, False, 0.0)


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_record_is_read_back_unchanged(tmp_path):
    rows = rows_of("imforest", "wine", "1", 99.5, 98.25)
    record = new_record("online", rows, SETTINGS, 12.34)
    write_record(record, COLUMNS, tmp_path)
    assert read_record("online", tmp_path) == record
    assert record.metadata["versions"]["numpy"]
    assert record.metadata["machine"]["cores"] >= 1


def test_a_missing_record_is_none_and_a_damaged_one_raises(tmp_path):
    assert read_record("online", tmp_path) is None
    write_record(new_record("online", [], SETTINGS, 0.0), COLUMNS, tmp_path)
    for text in ("{", "{}", "[]"):
        (tmp_path / "online.json").write_text(text)
        with pytest.raises(DamagedFileError, match=r"online\.json"):
            read_record("online", tmp_path)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_cells_have_our_result_the_papers_result_and_marks(tmp_path):
    rows = [
        *rows_of("imforest", "wine", "train", 98.0, 99.0),
        *rows_of("svm", "wine", "train", 10.0),
        *rows_of("size-std", "wine", "train", 90.0, 91.0),
    ]
    write(tmp_path, "batch", rows)
    text = write_page(tmp_path).read_text()
    assert "| iMForest | 98.5 ± 0.5 (99.0 ± 0.2) |" in text
    assert "| one-class SVM | 10.0 (68.6 ± 4.2) ≠ †1 |" in text
    assert "| *ours: size, std* | 90.5 ± 0.5 |" in text


def test_the_quality_table_marks_fewer_seeds_and_gives_standard_errors(tmp_path):
    rows = [
        {
            "set": name,
            "method": method,
            "mode": mode,
            "seed": seed,
            "auc": auc,
            "average_precision": auc,
            "seconds": 1.0,
        }
        for mode in ("batch", "novelty")
        for method, name, aucs in [
            ("iforest", "wine", (80.0, 90.0)),
            ("iforest", "pima", (60.0, 60.0)),
            ("knn", "wine", (90.0,)),
            ("knn", "pima", (61.0, 63.0)),
        ]
        for seed, auc in enumerate(aucs)
    ]
    columns = ("set", "method", "mode", "seed", "auc", "average_precision", "seconds")
    write(tmp_path, "quality", rows, columns, {"seeds": 2, "most_rows": 100})
    text = write_page(tmp_path).read_text()
    assert "| wine | 85.0 | 90.0 †1 |" in text
    assert "| pima | 60.0 | 62.0 |" in text
    assert "| iForest | 72.5 | 72.5 | 72.5 | 72.5 |" in text
    assert "| kNN | 76.0 ± 1.5 | 76.0 ± 1.5 |" in text  # gains of 5 and 2
    assert "Quality over 2 open sets, best mean AUC: kNN in batch mode (76.0) and kNN in novelty mode (76.0)." in text


def test_measurements_of_two_machines_are_listed_separately(tmp_path):
    write(tmp_path, "batch", rows_of("imforest", "wine", "train", 99.0))
    write(tmp_path, "online", rows_of("imforest", "wine", "1", 95.0))
    path = tmp_path / "reproduction" / "online.json"
    path.write_text(path.read_text().replace('"processor": "', '"processor": "Another '))
    text = write_page(tmp_path).read_text()
    first, second = text[text.index("## Machine, versions and settings") :].split("Another ")
    assert "- batch:" in first
    assert "- online:" in second


def test_of_two_checks_that_explain_a_difference_the_nearer_is_named(tmp_path):
    write(tmp_path, "online", rows_of("imforest", "wine", "1", 80.0))  # paper: 95.65
    found = [
        {"check": check, "set": "wine", "method": "imforest", "seed": 0, "part": "1", "auc": auc}
        for check, auc in (("seeds", 94.0), ("script-forest", 95.0))
    ]
    write(tmp_path, "online_checks", found, difference_checks.COLUMNS)
    assert (
        "| iMForest | Wine | 1 | script-forest | 95.65 | 80.00 | -15.65 | 95.00 |" in write_page(tmp_path).read_text()
    )


def test_sections_without_a_record_are_left_out(tmp_path):
    write(tmp_path, "batch", rows_of("imforest", "wine", "train", 99.0))
    text = write_page(tmp_path).read_text()
    assert "## Table II" in text
    assert "## Table III" not in text
    assert "Figure 1" not in text


def test_a_difference_without_a_near_check_is_unexplained(tmp_path):
    write(tmp_path, "online", [*rows_of("ospca1", "wine", "1", 60.0), *rows_of("ospca2", "wine", "1", 90.0)])
    found = [
        {"check": "script-ospca1", "set": "wine", "method": "ospca1", "seed": 0, "part": "1", "auc": 87.5},
        {"check": "script-ospca2", "set": "wine", "method": "ospca2", "seed": 0, "part": "1", "auc": 80.0},
    ]
    write(tmp_path, "online_checks", found, difference_checks.COLUMNS)
    text = write_page(tmp_path).read_text()
    assert "| osPCA1 | Wine | 1 | script-ospca1 | 86.95 | 60.00 | -26.95 | 87.50 |" in text
    assert "| osPCA2 | Wine | 1 | unexplained | 47.82 | 90.00 | +42.18 | 80.00 |" in text


def test_one_check_explains_a_method_on_a_set(tmp_path):
    """A check that explains both figures is preferred to checks that explain one of the two."""
    rows = [*rows_of("imforest", "wine", "1", 80.0), *rows_of("imforest", "wine", "2", 80.0)]  # paper: 95.65, 98.91
    write(tmp_path, "online", rows)
    found = [
        {"check": check, "set": "wine", "method": "imforest", "seed": seed, "part": part, "auc": auc}
        for check, part, low, high in [
            ("script-forest", "1", 95.0, 96.0),
            ("script-forest", "2", 10.0, 20.0),
            ("seeds", "1", 90.0, 99.0),
            ("seeds", "2", 90.0, 99.0),
        ]
        for seed, auc in enumerate([low, high])
    ]
    write(tmp_path, "online_checks", found, difference_checks.COLUMNS)
    text = write_page(tmp_path).read_text()
    assert text.count("| seeds |") == 2
    assert "| script-forest |" not in text


@pytest.mark.parametrize(
    ("results", "figure", "is_explained"),
    [
        ([], 50.0, False),
        ([50.0], 52.5, True),
        ([50.0], 52.6, False),
        ([50.0, 60.0], 62.5, True),
        ([50.0, 60.0] * 5, 60.0, True),
        ([50.0, 60.0] * 5, 60.1, False),
    ],
)
def test_a_check_explains_figures_between_its_results_or_near_them_if_they_are_few(results, figure, is_explained):
    assert explains(results, figure) == is_explained


def test_every_method_of_the_paper_that_may_differ_has_a_check():
    for cell in PUBLISHED:
        assert difference_checks.checks_of(cell.table, cell.method), cell


def test_a_table_has_the_same_number_of_cells_in_each_line():
    lines = table(["", "a", "b"], [["x", "1", ""], ["y", "", "2"]], n_texts=2).splitlines()
    assert lines[1] == "|---|---|---:|"
    assert {line.count("|") for line in lines} == {4}


# -- the page of the repository ----------------------------------------------------------------------------------------


def test_the_page_in_the_repository_matches_its_records(tmp_path):
    """The page in the repository equals the page generated from the records."""
    committed = REPOSITORY / "docs" / "reproduction.md"
    for path in (committed.parent / "reproduction").iterdir():
        (tmp_path / "reproduction").mkdir(exist_ok=True)
        (tmp_path / "reproduction" / path.name).write_bytes(path.read_bytes())
    assert write_page(tmp_path).read_text() == committed.read_text()


def test_the_page_has_all_methods_and_an_explanation_for_every_difference():
    folder = REPOSITORY / "docs" / "reproduction"
    for name, methods in (("batch", BATCH), ("online", ONLINE)):
        rows = list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))
        expected = {cell[1:] for cell in PUBLISHED if cell.table == name and cell.set != "cicids"}
        assert expected <= {(row["method"], row["set"], row["part"]) for row in rows}
        assert {row["method"] for row in rows} == set(methods)
    text = (REPOSITORY / "docs" / "reproduction.md").read_text()
    assert "unexplained" not in text
    assert re.search(r"Table II, iMForest: 16 of 16 values", text)
