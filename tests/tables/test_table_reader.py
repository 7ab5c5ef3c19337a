"""Tables are read completely, whatever the batches, and errors name what is wrong."""

import gzip
import io
import json
import sys

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.categories import category_code
from imondrian.base.errors import InvalidInputError
from imondrian.tables import table_reader, text_parsing
from imondrian.tables.table_reader import Table, TextLayout
from tests.tables.test_workbooks import workbook

CELLS = st.text(alphabet='ab1. ,;"\n\r\té', max_size=5)
NAMES = st.lists(st.text(alphabet="abcé ", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)


def written(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@st.composite
def tables(draw):
    names = draw(NAMES)
    rows = draw(st.lists(st.lists(CELLS, min_size=len(names), max_size=len(names)), min_size=1, max_size=12))
    return pl.DataFrame(rows, schema=[(name, pl.String) for name in names], orient="row")


@given(frame=tables(), block=st.integers(1, 60))
def test_csv_is_read_the_same_with_any_block_size(frame, block, tmp_path_factory):
    path = written(tmp_path_factory.mktemp("t"), frame.write_csv(quote_style="always"))
    before = text_parsing.BLOCK_BYTES
    text_parsing.BLOCK_BYTES = block
    try:
        read = Table(path, layout=TextLayout(separator=",")).read_all()
    finally:
        text_parsing.BLOCK_BYTES = before
    assert read.rows() == frame.rows()


@given(
    values=st.lists(st.sampled_from([True, False, 0, 1, 2.5, "a", "true: true", None]), min_size=1, max_size=8),
    other=st.sampled_from(["x", ': true"', '"flag": true', 3, True]),
    block=st.integers(1, 200),
)
def test_booleans_of_ndjson_are_never_numbers(values, other, block, tmp_path_factory):
    lines = [json.dumps({"a": value, "b": other}) for value in values]
    before = text_parsing.BLOCK_BYTES
    text_parsing.BLOCK_BYTES = block
    try:
        read = Table(written(tmp_path_factory.mktemp("t"), "\n".join(lines), "t.ndjson")).read_all()
    finally:
        text_parsing.BLOCK_BYTES = before
    expected = [None if value is None else category_code(value) for value in values]
    assert [None if value is None else category_code(value) for value in read["a"].to_list()] == expected
    assert read["b"].to_list() == [other] * len(values)


@given(rows=st.lists(st.integers(-5, 5), min_size=1, max_size=20), block=st.integers(1, 40))
def test_ndjson_is_read_the_same_with_any_block_size(rows, block, tmp_path_factory):
    path = written(tmp_path_factory.mktemp("t"), "\n".join(json.dumps({"a": a, "b": "x"}) for a in rows), "t.ndjson")
    before = text_parsing.BLOCK_BYTES
    text_parsing.BLOCK_BYTES = block
    try:
        read = Table(path).read_all()
    finally:
        text_parsing.BLOCK_BYTES = before
    assert read["a"].to_list() == rows


@pytest.mark.parametrize("extension", ["csv", "tsv", "ndjson", "parquet"])
def test_every_format_is_read_by_name_and_by_content(tmp_path, extension):
    frame = pl.DataFrame({"a": [1.5, 2.5, -3.0], "b": ["x", "y", "z"]})
    path = tmp_path / f"table.{extension}"
    if extension == "parquet":
        frame.write_parquet(path)
    elif extension == "ndjson":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path, separator="\t" if extension == "tsv" else ",")
    (tmp_path / "unnamed").write_bytes(path.read_bytes())
    (tmp_path / f"compressed.{extension}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for name in (path, tmp_path / "unnamed", tmp_path / f"compressed.{extension}.gz"):
        read = Table(str(name)).read_all()
        assert read.columns == ["a", "b"]
        assert read["a"].cast(pl.Float64).to_list() == [1.5, 2.5, -3.0]
        assert read["b"].to_list() == ["x", "y", "z"]


def test_a_file_name_is_not_a_glob_pattern(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "g1.parquet")
    pl.DataFrame({"a": [2]}).write_parquet(tmp_path / "g[1].parquet")
    assert Table(str(tmp_path / "g[1].parquet")).read_all().rows() == [(2,)]


def test_an_unclosed_quote_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(text_parsing, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(text_parsing, "MAX_RECORD_BYTES", 2000)
    path = written(tmp_path, 'a,b\n1,5" pipe\n' + "2,3\n" * 5000)
    batches = list(Table(path).batches())
    assert sum(batch.frame.height for batch in batches) == 5001
    assert max(batch.frame.height for batch in batches) < 1500


def test_parquet_is_read_in_slices(tmp_path, monkeypatch):
    monkeypatch.setattr(table_reader, "PARQUET_ROWS", 3)
    pl.DataFrame({"a": range(10)}).write_parquet(tmp_path / "t.parquet")
    batches = list(Table(str(tmp_path / "t.parquet")).batches())
    assert [batch.first for batch in batches] == [0, 3, 6, 9]
    assert [batch.share_read for batch in batches] == [0.3, 0.6, 0.9, 1.0]
    assert pl.concat(batch.frame for batch in batches)["a"].to_list() == list(range(10))


def test_standard_input_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"a,b\n1,2\n"))))
    table = Table("-")
    assert table.name == "standard input"
    assert table.read_all().rows() == [("1", "2")]


class SlowPipe(io.RawIOBase):
    """Delivers its content byte by byte."""

    def __init__(self, content):
        self.content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        byte = self.content.read(1)
        buffer[: len(byte)] = byte
        return len(byte)


PARQUET = io.BytesIO()
pl.DataFrame({"a": ["1"], "b": ["2"]}).write_parquet(PARQUET)


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n",
        b'\n\n{"a": "1", "b": "2"}\n',
        gzip.compress(b"a,b\n1,2\n"),
        gzip.compress(b'\n{"a": "1", "b": "2"}\n'),
        PARQUET.getvalue(),
        workbook({"s": [["a", "b"], ["1", "2"]]}),
    ],
    ids=["csv", "ndjson", "csv.gz", "ndjson.gz", "parquet", "xlsx"],
)
def test_the_format_of_standard_input_does_not_depend_on_how_it_is_split(monkeypatch, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(SlowPipe(content))))
    read = Table("-").read_all()
    assert read.columns == ["a", "b"]
    assert read.rows() == [("1", "2")]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n", [("1", "2")]),  # byte order mark, Windows line ends, a blank line
        (b"\n\na,b\n1,2\n\n3,4", [("1", "2"), ("3", "4")]),
        (b"a;b\n1,5;2\n", [("1,5", "2")]),
        (b"a|b\n1|2\n", [("1", "2")]),
        (b"a,b\n1\n", [("1", None)]),
        (b'a,b\n"1\n,2",3\n', [("1\n,2", "3")]),
        (b'a,b\n"x\n\ny",3\n\n4,5', [("x\n\ny", "3"), ("4", "5")]),  # a blank line inside of a field stays
        (b"a,b\n1,2\n,\n3,4\n", [("1", "2"), (None, None), ("3", "4")]),  # a row of missing values is a row
        (b'a,b\n1,5" pipe\n2,x\n', [("1", '5" pipe'), ("2", "x")]),  # a quote inside an unquoted field
        (b'a 5",b\n1,2\n3,4\n', [("1", "2"), ("3", "4")]),
        (b"\n\na;b\n1;2\n", [("1", "2")]),
    ],
)
def test_common_variants_of_csv_are_read(tmp_path, content, rows):
    assert Table(written(tmp_path, content)).read_all().rows() == rows


def test_a_table_without_header_has_numbered_columns(tmp_path):
    read = Table(written(tmp_path, "1,2\n3,4\n"), layout=TextLayout(has_header=False)).read_all()
    assert read.columns == ["column_1", "column_2"]
    assert read.rows() == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "has no rows"),
        ("t.csv", b"\n", "has no rows"),
        ("t.csv", b"\xef\xbb\xbf", "has no rows"),
        ("t.csv", b"a,b\n1,2,3\n" + b"x" * 200_000 + b",2\n", "row 1 has 3 fields|field larger than"),
        ("t.ndjson", b"[" * 200_000, "line 1: the JSON is nested more than 100 levels deep"),
        ("t.ndjson", b'{"a": NaN}\n{"b": "\\ud800"}\n', "line 2 has half of a surrogate pair"),
        ("t.csv", b"a,b\n1,2\n\n3,4,5\n", "row 2 has 3 fields, but the header has 2"),
        ("t.csv", b"a,b\n1,2\n3,\x81\n", "the byte 0x81 is not valid in cp1252: choose another --encoding"),
        ("t.csv.gz", b"\x1f\x8b123", "cannot be read"),
        ("t.ndjson", b'{"a":1}\nxx\n', "line 2 is not JSON"),
        ("t.ndjson", b'{"a":1}\n[1]\n', "line 2 is not a JSON object"),
        ("t.ndjson", b'\n\r\n{"a":1}\n{"a":2\n', "line 4 is not JSON"),
        ("t.ndjson", b'\xef\xbb\xbf\n{"a":1}\n{"a":1,"a":2}\n', "line 3: the key 'a' appears more than once"),
        ("t.ndjson", b'{"a":1}\n{"a": NaN, "a": 2}\n', "line 2: the key 'a' appears more than once"),
        ("t.parquet", b"PAR1 and nothing else", "cannot be read as Parquet"),
        ("t.dat", b'[{"a": 1}]', "must be NDJSON"),
        ("t.csv", b"PK\x03\x04 and more", "cannot be read as an Excel file|Excel files need fastexcel"),
        ("t.xls", b"\xd0\xcf\x11\xe0 and more", "is an old or protected Excel file: save it as .xlsx or as CSV"),
    ],
)
def test_an_unreadable_table_raises_with_the_reason(tmp_path, name, content, message):
    with pytest.raises(InvalidInputError, match=message):
        Table(written(tmp_path, content, name)).read_all()


def test_an_integer_of_any_length_is_read(tmp_path):
    digits = "9" * 5000
    read = Table(written(tmp_path, f'{{"a": 1, "b": {digits}}}\n{{"a": 2, "b": 3}}\n', "t.ndjson")).read_all()
    assert read["a"].to_list() == [1, 2]
    assert read["b"].to_list() == [digits, "3"]


def test_missing_files_and_wrong_options_raise(tmp_path):
    with pytest.raises(InvalidInputError, match="file not found"):
        Table(str(tmp_path / "none.csv"))
    with pytest.raises(InvalidInputError, match="is a folder"):
        Table(str(tmp_path))
    for separator in ("ab", '"', "é"):
        with pytest.raises(InvalidInputError, match="separator must be one ASCII character"):
            Table(written(tmp_path, "a\n1\n"), layout=TextLayout(separator=separator))
    with pytest.raises(InvalidInputError, match="format must be one of"):
        Table(written(tmp_path, "a\n1\n"), file_format="xls")


def test_a_sheet_of_a_file_that_is_not_a_workbook_is_an_error(tmp_path):
    path = written(tmp_path, "a\n1\n", "t.csv")
    with pytest.raises(InvalidInputError, match=r"t.csv is not a workbook, so it has no sheet 'Orders'"):
        Table(path, layout=TextLayout(sheet="Orders"))


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, 2**100, 2**127])
def test_integers_beyond_64_bits_beside_what_polars_refuses_are_numbers(tmp_path, number):
    path = written(tmp_path, f'{{"a": NaN, "id": {number}}}\n{{"a": 2.5, "id": 5}}\n', "t.ndjson")
    assert Table(path).read_all()["id"].to_list() == [float(number), 5.0]


def test_ndjson_with_mixed_types_is_read_line_by_line(tmp_path):
    lines = ['{"a": 1, "b": {"c": 1}}', '{"a": true, "b": "x"}', '{"a": NaN}', f'{{"a": 1{"0" * 400}}}']
    read = Table(written(tmp_path, "\n".join(lines[:3]), "t.ndjson")).read_all()
    assert read["a"].to_list() == ["1", "true", "NaN"]
    exact = '{"id": 9007199254740993, "on": true, "x": 1.5}\n{"id": 2, "on": false, "x": NaN}'
    assert Table(written(tmp_path, exact, "t.ndjson")).read_all().row(0) == (9007199254740993, True, 1.5)
    assert read["b"].to_list() == ['{"c": 1}', "x", None]
    assert Table(written(tmp_path, "\n".join(lines), "t.ndjson")).read_all()["a"].dtype == pl.String
