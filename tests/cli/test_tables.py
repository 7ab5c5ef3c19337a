"""`imondrian detect` on the tables people have: exports, gaps, other encodings, and hostile ones."""

import csv
import gzip
import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import imondrian
from tests.cli.conftest import Shell
from tests.tables.test_hostile_workbooks import FAR, TABLE, book
from tests.tables.test_workbooks import workbook

N_ROWS = 400
ODD = 250  # the row with the odd value
TABLES = [  # described in the README beside them
    *("aid362", "apascal", "bank", "chess", "cmc", "credit-g"),
    *("hepatitis", "nsl-probe", "nsl-r2l", "sick", "solar-flare"),
]
QUICK = ("--trees", "20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Shell(tmp_path_factory.mktemp("tables"))


def orders(n_rows=N_ROWS):
    """Return the columns of orders; one is from a country that no other order has."""
    rng = np.random.default_rng(0)
    countries = rng.choice(["Österreich", "Frankreich", "Spanien"], n_rows)
    countries[ODD - 1] = "Nordkorea"
    return {
        "order": [f"ORD-{10_000 + i}" for i in range(n_rows)],
        "day": [str(np.datetime64("2024-01-01") + i % 90) for i in range(n_rows)],
        "country": countries.tolist(),
        "gift": rng.choice(["TRUE", "FALSE"], n_rows).tolist(),
        "amount": rng.uniform(900.0, 1_900.0, n_rows).round(2).tolist(),
        "discount": rng.uniform(0.0, 20.0, n_rows).round(1).tolist(),
    }


def csv_text(columns, separator=","):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return file.getvalue()


def german(number):
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def detect(shell, name, *options):
    return json.loads(shell.run("detect", name, "--json", *QUICK, *options).stdout)


def check_odd_row(summary):
    """The row from another country is the oddest, and explained by its country."""
    first = summary["highest"][0]
    assert first["row"] == ODD
    assert first["id"] == f"ORD-{9_999 + ODD}"
    assert first["explanation"][0]["value"] == "Nordkorea"
    assert first["explanation"][0]["n_seen"] == 1


# -- exports ----------------------------------------------------------------------------------------------------------


def test_an_ordinary_table_is_read_fitted_scored_and_explained(folder):
    columns = orders()
    for i in (3, 77):
        columns["amount"][i] = ""
    folder.write("orders.csv", csv_text(columns))
    outputs = ("-o", "scored.csv", "--report", "report.html", "--save", "orders.imf", "--id", "order", "--calendar")
    text = folder.run("detect", "orders.csv", *outputs, *QUICK).stdout
    assert "numbers    2: amount, discount" in text
    assert "categories 3: day (weekday), country, gift" in text
    assert "filled     amount 2 (missing; the median is used)" in text
    odd = next(line for line in text.splitlines() if "ORD-10249" in line)
    assert "country = Nordkorea (1 in 400), " in odd
    scored = folder.text("scored.csv")
    assert scored.splitlines()[0] == f"{','.join(columns)},anomaly_score,surprise,is_anomaly,explanation"
    page = folder.text("report.html")
    assert "ORD-10249" in page
    assert "Nordkorea" in page
    assert "1 in 400" in page
    assert folder.run("score", "orders.imf", "orders.csv", "-q").stdout == scored
    explained = folder.run("explain", "orders.imf", "orders.csv", "--rows", ODD, "--id", "order").stdout
    assert "ORD-10249" in explained
    assert "country = Nordkorea" in explained
    folder.run("plot", "tree", "orders.csv", "--model", "orders.imf", "-o", "tree.svg", "-q")
    assert "(rarity)" in folder.text("tree.svg") or "(place)" in folder.text("tree.svg")
    two = ("--features", "country,amount")
    assert "needs two numbers, but 'country' is a category" in folder.fails("plot", "regions", "orders.csv", *two)
    model = imondrian.load(folder.folder / "orders.imf")
    assert list(model.feature_names_in_) == ["day (weekday)", "country", "gift", "amount", "discount"]
    assert model.categorical_ == (0, 1, 2)


def test_a_german_export_is_read(folder):
    columns = orders()
    columns["amount"] = [f"{german(value)} €" for value in columns["amount"]]
    columns["discount"] = [f"{value:.1f}".replace(".", ",") for value in columns["discount"]]
    columns["day"] = [f"{day[8:]}.{day[5:7]}.{day[:4]}" for day in columns["day"]]
    content = f"Umsätze 2024;;;;;\r\n\r\n{csv_text(columns, ';')}".encode("cp1252")
    (folder.folder / "german.csv").write_bytes(content)
    summary = detect(folder, "german.csv", "--id", "order", "--save", "german.imf")
    check_odd_row(summary)
    assert summary["features"] == ["country", "gift", "amount", "discount"]
    assert summary["left_out"]["day"].startswith("a date or time")
    assert summary["notes"] == [
        "skipped 1 title line before the header",
        "the text is not UTF-8 and was read as Windows-1252 (--encoding chooses another one)",
        "amount: decimal comma, thousands point, € sign removed",
        "discount: decimal comma",
    ]
    usual = next(reason for row in summary["highest"] for reason in row["explanation"] if reason["feature"] == "amount")
    assert 900.0 <= usual["value"] <= 1_900.0
    (folder.folder / "short.csv").write_bytes(content[:2000].rsplit(b"\r\n", 1)[0])
    rows = list(csv.DictReader(io.StringIO(folder.run("score", "german.imf", "short.csv", "-q").stdout)))
    assert rows[0]["country"] in ("Österreich", "Frankreich", "Spanien")


def test_a_us_export_is_read(folder):
    columns = orders()
    columns["amount"] = [f"${value:,.2f}" if i % 9 else f"(${value:,.2f})" for i, value in enumerate(columns["amount"])]
    columns["discount"] = [f"{value}%" for value in columns["discount"]]
    columns["day"] = [f"{day[5:7]}/{day[8:]}/{day[:4]} 1:30 PM" for day in columns["day"]]
    folder.write("us.csv", csv_text(columns))
    summary = detect(folder, "us.csv", "--id", "order", "-o", "us.parquet")
    check_odd_row(summary)
    assert summary["notes"] == [
        "amount: thousands comma, $ sign removed, numbers in parentheses are negative",
        "discount: % sign removed",
    ]
    written = pl.read_parquet(folder.folder / "us.parquet")
    assert written["discount"].to_list() == orders()["discount"]
    assert written["amount"][0] < 0.0 < written["amount"][1]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_other_encodings_are_read(folder, encoding):
    (folder.folder / "encoded.csv").write_bytes(csv_text(orders()).encode(encoding))
    check_odd_row(detect(folder, "encoded.csv", "--id", "order"))


def test_a_workbook_is_read(folder):
    pytest.importorskip("fastexcel")
    columns = orders()
    rows = [["Orders", *[None] * 5], list(columns), *map(list, zip(*columns.values(), strict=True))]
    (folder.folder / "orders.xlsx").write_bytes(workbook({"Notes": [["nothing here"]], "Orders": rows}))
    summary = detect(folder, "orders.xlsx", "--sheet", "Orders", "--id", "order")
    check_odd_row(summary)
    assert summary["notes"] == ["skipped 1 title line before the header"]
    assert "has no sheet 'x'; the sheets are 'Notes', 'Orders'" in folder.fails("detect", "orders.xlsx", "--sheet", "x")


def test_a_workbook_with_a_far_cell_is_an_error_in_one_line(folder):
    pytest.importorskip("fastexcel")
    (folder.folder / "far.xlsx").write_bytes(book(TABLE + FAR))
    problem = folder.fails("detect", "far.xlsx")
    assert problem.startswith("imondrian: far.xlsx: the sheet 's0' cannot be loaded: it is damaged, or needs more than")
    assert problem.count("\n") == 1


def test_a_table_with_many_gaps_is_filled(folder):
    rng = np.random.default_rng(1)
    columns = orders()
    for name in ("country", "gift", "amount", "discount"):
        for i in np.flatnonzero(rng.random(N_ROWS) < 0.4):
            columns[name][i] = "" if i != ODD - 1 else columns[name][i]
    (folder.folder / "gaps.csv.gz").write_bytes(gzip.compress(csv_text(columns).encode()))
    summary = detect(folder, "gaps.csv.gz", "--id", "order", "-o", "gaps.csv")
    assert ODD in [row["row"] for row in summary["highest"][:3]]
    assert set(summary["filled"]) == {"amount", "discount"}
    assert 140 < summary["filled"]["amount"] < 180
    indicated = detect(folder, "gaps.csv.gz", "--missing", "indicator", "--ignore", "order,day", "--save", "i.imf")
    assert indicated["n_scored"] > 350
    rows = list(csv.DictReader(io.StringIO(folder.run("score", "i.imf", "gaps.csv.gz", "-q").stdout)))
    assert len(rows) == N_ROWS
    dropped = detect(folder, "gaps.csv.gz", "--missing", "drop")
    assert 20 < dropped["n_scored"] < 100


def test_separators_and_kinds_can_be_chosen(folder):
    columns = {"code": ["17", "4", "17", "99"] * 25, "a": [f"{1 + i % 9},{100 + i}" for i in range(100)]}
    folder.write("codes.csv", csv_text(columns, ";"))
    summary = detect(folder, "codes.csv", "--categorical", "code", "--thousands", ",")
    assert summary["categorical"] == ["code"]
    assert summary["notes"] == ["a: thousands comma"]
    assert detect(folder, "codes.csv")["notes"] == ["a: decimal comma"]
    assert "--decimal must be '.' or ','" in folder.fails("detect", "codes.csv", "--decimal", "x")
    assert "the encoding 'x' is unknown" in folder.fails("detect", "codes.csv", "--encoding", "x").lower()


# -- published tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_published_tables_are_read_at_the_first_try(folder, name):
    data = os.environ.get("IMONDRIAN_DATA")
    path = Path(data or "", "tables", f"{name}.csv.gz")
    if data is None or not path.exists():
        pytest.skip("needs the tables in the folder IMONDRIAN_DATA")
    summary = detect(folder, path, "--ignore", "label", "--threshold", "top 5%")
    assert summary["n_scored"] == summary["n_rows"]
    names = pl.read_csv(path, n_rows=0).columns
    assert {*summary["features"], *summary["left_out"]} == set(names)
    assert len(summary["features"]) > len(names) / 2
    assert 0.0 < summary["n_anomalies"] / summary["n_rows"] < 0.1


# -- hostile tables ---------------------------------------------------------------------------------------------------


def test_names_come_back_as_they_were(folder):
    rng = np.random.default_rng(0)
    header = ["a", "a", 'say "x"', "", "", "line\nbreak", "b,c"]
    rows = rng.normal(size=(30, 7)).round(4).tolist()
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([header, *rows])
    folder.write("names.csv", file.getvalue())
    summary = detect(folder, "names.csv", "-o", "names_out.csv", "--save", "names.imf")
    assert summary["features"] == ["a", "a (2)", 'say "x"', "column_4", "column_5", "line\nbreak", "b,c"]
    written = list(csv.reader(io.StringIO(folder.text("names_out.csv"))))
    assert written[0] == [*header, "anomaly_score", "surprise", "is_anomaly", "explanation"]
    assert folder.run("score", "names.imf", "names.csv", "-q").stdout == folder.text("names_out.csv")
    assert detect(folder, "names.csv", "--features", "a (2)")["features"] == ["a (2)"]


def test_a_quote_that_is_not_closed_is_an_error_in_one_line(folder):
    rows = [f"{i % 7},ok" for i in range(1000)]
    rows[10] = '3,"5 inch'
    folder.write("unclosed.csv", "load,comment\n" + "\n".join(rows) + "\n")
    assert "row 11 has a field whose opening quote is not closed" in folder.fails("detect", "unclosed.csv")


def test_a_long_cell_is_shortened_on_the_terminal_only(folder):
    """The time to lay out a cell on the terminal grows with the square of its length."""
    long = "x" * 2**20
    rows = [f"{i},a" for i in range(50)]
    folder.write("long.csv", "\n".join(["x,note", *rows, f"1,{long}", *rows]))
    printed = folder.run("detect", "long.csv", *QUICK).stdout
    assert "note = xxxxxxxxxxxx" in printed
    assert detect(folder, "long.csv")["highest"][0]["explanation"][0]["value"] == long
    printed_ids = folder.run("detect", "long.csv", "--id", "note", "--top", "101", *QUICK).stdout
    assert f"{long[:100]}..." in printed_ids
    assert long in [row["id"] for row in detect(folder, "long.csv", "--id", "note", "--top", "101")["highest"]]
    assert max(len(printed), len(printed_ids)) < 50_000


def test_quoted_newlines_and_one_category_are_read(folder):
    rows = [f'"first\nsecond {i}",same,{i * i % 97}' for i in range(60)]
    folder.write("newlines.csv", "\n".join(["note,kind,a", *rows]))
    summary = detect(folder, "newlines.csv")
    assert summary["n_rows"] == 60
    assert summary["features"] == ["a"]
    assert summary["left_out"]["kind"] == "constant: 'same' in every row"
    assert summary["left_out"]["note"].startswith("an id")


def test_many_categories_and_many_columns_are_read(folder):
    rng = np.random.default_rng(0)
    users = [f"user{i % 50_000}" for i in range(60_000)]
    pl.DataFrame({"user": users, "a": rng.normal(size=60_000).round(3)}).write_csv(folder.folder / "users.csv")
    summary = detect(folder, "users.csv")
    assert summary["categorical"] == ["user"]
    values = rng.normal(size=(100, 500)).round(3).astype(str)
    values[:, ::2] = rng.choice(["x", "y"], (100, 250))
    values[49, 498] = "z"
    pl.DataFrame(values, schema=[f"c{j}" for j in range(500)]).write_csv(folder.folder / "wide.csv")
    summary = detect(folder, "wide.csv")
    assert len(summary["features"]) == 500
    assert len(summary["categorical"]) == 250


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a,b\n", "has no rows"),
        ("a,b\n1,2\n1,2,3\n4,5\n", "row 2 has 3 fields, but the header has 2"),
        ("id,key\n" + "".join(f"{i},k{i}\n" for i in range(50)), "no column can be used as a feature (id: consecutive"),
        ("a,b\n,\n,\n", "no column can be used as a feature (a: no values; b: no values)"),
        (
            f"{','.join(f'c{j}' for j in range(1200))}\n" + f"{',' * 1199}\n" * 9,
            "c9: no values; and 1,190 other columns).",
        ),
        ("a,b\n" + "1e308,1\n-1e308,2\n" * 9, "row 1, column 'a': 1e+308 exceeds 1e+153 in absolute value."),
        (
            "a,b\n" + "".join(f"{i * i},{i % 7}\n" for i in range(30)) + "soon,3\n",
            "row 31, column 'a': 'soon' is not a number (--ignore a leaves the column out, --categorical a makes it",
        ),
    ],
)
def test_unusable_tables_give_one_line_that_says_what_and_where(folder, content, message):
    folder.write("hostile.csv", content)
    assert message in folder.fails("detect", "hostile.csv")


def test_only_commands_that_choose_columns_suggest_options_for_a_column(folder):
    rows = "".join(f"{i * i},{i % 7}\n" for i in range(30))
    folder.write("numbers.csv", f"a,b\n{rows}")
    folder.write("text.csv", f"a,b\n{rows}soon,3\n")
    folder.run("fit", "numbers.csv", "--save", "numbers.imf", "-q")
    problem, options = "text.csv: row 31, column 'a': 'soon' is not a number", "--ignore a leaves the column out"
    for command in (["detect"], ["fit", "--save", "new.imf"], ["plot", "scores"]):
        assert f"{problem} ({options}" in folder.fails(*command, "text.csv")
    for command in (["score", "numbers.imf"], ["explain", "numbers.imf"], ["plot", "scores", "--model", "numbers.imf"]):
        assert folder.fails(*command, "text.csv").endswith(f"{problem}.\n")


def test_a_missing_value_that_is_an_error_names_what_median_would_do(folder):
    rows = "".join(f"{i * i},{'xyz'[i % 3]}\n" for i in range(30))
    folder.write("full.csv", f"a,k\n{rows}")
    folder.write("number.csv", f"a,k\n{rows},x\n")
    folder.write("category.csv", f"a,k\n{rows}7,\n")
    folder.run("fit", "full.csv", "--save", "full.imf", "-q")
    for command in (["detect"], ["score", "full.imf"]):
        number = folder.fails(*command, "number.csv", "--missing", "fail")
        assert "row 31, column 'a': the value is missing" in number
        assert "--missing median fills in the median" in number
        category = folder.fails(*command, "category.csv", "--missing", "fail")
        assert "row 31, column 'k': the value is missing" in category
        assert "--missing median treats it as a category of its own" in category
        folder.run(*command, "category.csv", "--missing", "median", "-q")


def test_model_files_and_archives_given_as_data_are_named_for_what_they_are(folder):
    folder.write("some.csv", "a,b\n" + "".join(f"{i * i},{i % 7}\n" for i in range(30)))
    folder.run("fit", "some.csv", "--save", "some.imf", "-q")
    with zipfile.ZipFile(folder.folder / "some.zip", "w") as archive:
        archive.write(folder.folder / "some.csv", "some.csv")
    shutil.copy(folder.folder / "some.imf", folder.folder / "model.csv")
    shutil.copy(folder.folder / "some.zip", folder.folder / "archive.xlsx")
    for command in (["detect"], ["score", "some.imf"]):
        for name in ("some.imf", "model.csv"):
            assert (
                folder.fails(*command, name)
                == f"imondrian: {name} is a model file, not a table (imondrian info describes it).\n"
            )
        for name in ("some.zip", "archive.xlsx"):
            problem = f"imondrian: {name} is a zip archive, not a table: extract it first.\n"
            assert folder.fails(*command, name) == problem
    assert (
        folder.fails("watch", "some.imf")
        == "imondrian: The stream is a model file, not a table (imondrian info describes it).\n"
    )
    assert "a zip or Excel file cannot be read line by line" in folder.fails("watch", "some.zip")


def test_errors_about_files_name_the_path_that_was_given(folder):
    folder.write("some.csv", "a,b\n" + "".join(f"{i * i},{i % 7}\n" for i in range(30)))
    for name in ("loop.csv", "loop.imf"):
        (folder.folder / name).symlink_to(name)
    is_loop = "Too many levels of symbolic links.\n"
    for command in (["detect"], ["watch"], ["watch", "--follow"]):
        assert folder.fails(*command, "loop.csv") == f"imondrian: loop.csv: {is_loop}"
    for command in (["info", "loop.imf"], ["score", "loop.imf", "some.csv"]):
        assert folder.fails(*command) == f"imondrian: loop.imf: {is_loop}"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which no file can be created")
def test_errors_about_output_do_not_name_the_temporary_file(folder):
    folder.write("some.csv", "a,b\n" + "".join(f"{i * i},{i % 7}\n" for i in range(30)))
    for option, path in (("--output", "/proc/out.csv"), ("--report", "/proc/out.html"), ("--save", "/proc/out.imf")):
        assert folder.fails("detect", "some.csv", option, path).startswith(f"imondrian: {path}: ")


def binary_files():
    rng = np.random.default_rng(0)
    arrays = {
        "integers": np.arange(1000),
        "floats": rng.normal(size=1000),
        "bytes": rng.integers(0, 256, 9000, np.uint8),
    }
    contents = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array)
        contents[name] = file.getvalue()
    parquet = io.BytesIO()
    pl.DataFrame({"a": rng.normal(size=2000)}).write_parquet(parquet)
    return {**contents, "parquet": parquet.getvalue()}


@pytest.mark.parametrize("encoding", ["auto", "utf-8", "cp1252"])
@pytest.mark.parametrize("kind", binary_files())
def test_binary_files_are_refused_without_advice_on_encodings(folder, kind, encoding):
    (folder.folder / "binary.csv").write_bytes(binary_files()[kind])
    problem = folder.fails("detect", "binary.csv", "--encoding", encoding)
    assert "binary.csv is a binary file, but was read as text: a table must be CSV, TSV, NDJSON, Parquet or" in problem
    assert "encoding" not in problem


def test_mixed_values_are_categories_if_they_are_few(folder):
    grades = ["1", "2", "3", "absent", "2"] * 20
    folder.write("grades.csv", csv_text({"grade": grades, "a": [i * i % 37 for i in range(100)]}))
    assert detect(folder, "grades.csv")["categorical"] == ["grade"]
