"""The rows of CSV are those that Python's csv module reads, however the file is cut into blocks."""

import csv
import gzip
import io
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables import csv_records, text_parsing
from imondrian.tables.csv_records import (
    MAX_FIELDS,
    RecordCutter,
    first_records,
    first_wide_record,
    long_fields,
    structural_quotes,
)
from imondrian.tables.table_reader import Table, TextLayout
from imondrian.tables.text_parsing import ReadingFacts, TextSource, read_csv, read_ndjson

WIDTH = 3
SEPARATORS = st.sampled_from(",;\t|")
END = "the end of the text"
TOKENS = ["a", "é", " ", '"', '"', '""', "S", "S", "S", ",", ";", "\n", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r"]
ANY_TEXT = st.lists(st.sampled_from(TOKENS), max_size=40).map("".join)
REGULAR_CELLS = ["", "1", "x y", '""', '"a"', '"S"', '"a""b"', '"""a"""', '"a\nb"', '"\n\n"', '"c\r\n\r\nd"', '"e\rf"']
STRAY_CELLS = ['5"', '5" pipe', 'a"b"c', 'x""', ' "y"', '"a"b', '"a" ', '"a"b"c"', '"a\nb"c', '"",;"']
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\r\n\r\n"])


def table_texts(cells):
    """Return texts of rows of three cells, with blank lines; the last row may lack its line end."""
    rows = st.lists(st.tuples(*[st.sampled_from(cells)] * WIDTH, LINE_ENDS), min_size=1, max_size=12)
    texts = rows.map(lambda rows: "".join("S".join(row[:WIDTH]) + row[WIDTH] for row in rows))
    return st.tuples(texts, st.booleans()).map(lambda text: text[0] if text[1] else text[0].rstrip("\r\n"))


TEXTS = st.one_of(ANY_TEXT, table_texts(REGULAR_CELLS), table_texts(REGULAR_CELLS + STRAY_CELLS))


def rows_of_csv(text, separator):
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]


def ends_in_quotes(text, separator):
    return rows_of_csv(f"{text}\n{END}", separator)[-1:] != [[END]]


@contextmanager
def blocks_of(n_bytes, max_record_bytes=text_parsing.MAX_RECORD_BYTES):
    with (
        patch.object(text_parsing, "BLOCK_BYTES", n_bytes),
        patch.object(text_parsing, "MAX_RECORD_BYTES", max_record_bytes),
    ):
        yield


def rows_read(text, **layout):
    """Read rows of text; the separator is a comma unless it is given."""
    source = TextSource("t", io.BytesIO(text.encode()).read, ReadingFacts(), **{"separator": ",", **layout})
    return [row for frame in read_csv(source) for row in frame.rows()]


@given(text=TEXTS, separator=SEPARATORS, block=st.integers(1, 50))
@example('1S5" pipeS\n2S"a\nb"S\n' * 4, ",", 30)  # a stray quote, then line ends in quotes
@example('5"S\n\n"a\n\nb"S\n', ",", 1000)  # blank lines after a stray quote
@example('1S2S3\n"aS2\n4S5S6\n', ",", 8)  # not closed
@example('"a"bSc"d"\n', ",", 1000)
@example("1S2S3\r4S5S6\r", ",", 7)  # line ends of old Macs
@example("1S2S3\r\n\r\n", ",", 24)  # the block ends between CR and LF
def test_the_rows_are_those_of_the_csv_module(text, separator, block):
    text = text.replace("S", separator)
    expected = rows_of_csv(text, separator)
    is_unclosed = ends_in_quotes(text, separator)
    n_rows = len(expected) - is_unclosed
    too_wide = next((i for i, row in enumerate(expected[:n_rows], start=1) if any(row[WIDTH:])), None)

    def read():
        return rows_read(separator.join("abc") + "\n" + text, separator=separator, skip_lines=0)

    with blocks_of(block):
        if too_wide:
            with pytest.raises(InvalidInputError, match=f"^t: row {too_wide} has .* fields, but the header has 3"):
                read()
        elif is_unclosed:
            with pytest.raises(InvalidInputError, match=f"^t: row {n_rows + 1} has a field whose opening quote is not"):
                read()
        else:
            rows = read()
            assert [[cell or "" for cell in row] for row in rows] == [(row + [""] * WIDTH)[:WIDTH] for row in expected]
            assert all(cell is None for row, cells in zip(rows, expected, strict=True) for cell in row[len(cells) :])


@given(text=TEXTS, separator=SEPARATORS, data=st.data())
def test_blocks_are_complete_records_and_nothing_is_lost(text, separator, data):
    content = text.replace("S", separator).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    cutter = RecordCutter(separator)
    blocks = [cutter.cut(content[first:end]).text for first, end in zip([0, *cuts], [*cuts, len(content)], strict=True)]
    assert cutter.is_in_quotes == ends_in_quotes(content.decode(), separator)
    rest = cutter.rest().text
    assert b"".join([*blocks, rest]) == content
    assert not any(block and ends_in_quotes(block.decode(), separator) for block in blocks)
    assert all(block.endswith((b"\n", b"\r")) for block in blocks if block)
    assert len(rows_of_csv(rest.decode(), separator)) <= 1


@given(text=TEXTS, separator=SEPARATORS)
def test_the_first_records_are_those_of_the_csv_module(text, separator):
    text = text.replace("S", separator)
    if not ends_in_quotes(text, separator):
        content = text.encode()
        ends = first_records(content, separator, 1000, is_complete=True)
        found = [rows_of_csv(content[first:end].decode(), separator) for first, end in ends]
        rows = rows_of_csv(text, separator)
        assert [row for rows in found for row in rows if "".join(row).strip()] == [
            row for row in rows if "".join(row).strip()
        ]


@pytest.mark.parametrize(
    ("text", "n_quotes", "is_regular"),
    [
        (b"a,b\n", 0, True),
        (b'"a","b ""c"""\n"d"\r\n', 10, True),
        (b'"a\n', 1, True),
        (b'5",b\n', 0, False),
        (b'"a"b,"c"\n', 4, False),
        (b'a;"b"\n', 0, False),
    ],
)
def test_stray_quotes_are_recognised(text, n_quotes, is_regular):
    quotes, are_regular = structural_quotes(text, b",")
    assert (quotes.size, are_regular) == (n_quotes, is_regular)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a,b\n" + "1,x\n" * 10 + '2,"5 inch\n' + "3,y\n" * 1000, "row 11"),
        ("a,b\n" + "1,x\n" * 10 + '2,"5 inch\n' + "3,y\n" * 100_000, "row 11"),  # longer than a field of csv may be
        ('a,b\n1,2\n3,"4', "row 2"),
        ('a,"b\n1,2\n3,4\n', "the header"),
    ],
)
@pytest.mark.parametrize("block", [1000, 2**23])
def test_a_quote_that_is_not_closed_is_an_error_that_names_the_row(text, row, block):
    with blocks_of(block), pytest.raises(InvalidInputError, match=f"^t: {row} has a field whose opening quote is not"):
        rows_read(text)


def test_a_table_without_header_has_no_header_in_errors():
    with pytest.raises(InvalidInputError, match="row 1 has a field whose opening quote is not closed"):
        rows_read('"1,2\n3,4\n', has_header=False)


@pytest.mark.parametrize(
    ("record", "message"),
    [("x" * 5000, "row 3 is longer than 64 MiB"), ('"' + "x\n" * 2500, "row 3 has .* not closed within 64 MiB")],
)
def test_a_record_that_does_not_end_is_refused_in_bounded_memory(record, message):
    file = io.BytesIO(f"a,b\n1,2\n3,4\n{record}".encode() + b"x\n" * 5000)
    with blocks_of(100, max_record_bytes=2000), pytest.raises(InvalidInputError, match=message):
        list(read_csv(TextSource("t", file.read, ReadingFacts())))
    assert file.tell() < 3000


def test_a_line_of_ndjson_that_does_not_end_is_refused_in_bounded_memory():
    file = io.BytesIO(b'{"a": 1}\n{"a": "' + b"x" * 10_000)
    with blocks_of(100, max_record_bytes=2000), pytest.raises(InvalidInputError, match="line 2 is longer than 64 MiB"):
        list(read_ndjson(TextSource("t", file.read, ReadingFacts())))
    assert file.tell() < 3000


def test_a_compressed_line_above_the_limit_is_refused(tmp_path):
    path = tmp_path / "line.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(80):
            file.write(b"x" * 2**20)
    with pytest.raises(InvalidInputError, match="row 2 is longer than 64 MiB"):
        Table(str(path)).read_all()


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("x" * 200_000, "x" * 200_000),
        ('"' + "x\n" * 100_000 + '"', "x\n" * 100_000),
        ('5" ' + "x" * 200_000, '5" ' + "x" * 200_000),
    ],
    ids=["plain", "quoted", "stray quote"],
)
def test_a_field_can_be_longer_than_the_limit_of_the_csv_module(cell, value):
    limit = csv.field_size_limit()
    assert rows_read(f"a,b\n1,{cell}\n2,y\n", separator=None) == [("1", value), ("2", "y")]
    assert csv.field_size_limit() == limit


def test_the_limit_of_the_csv_module_is_restored_after_an_error():
    limit = csv.field_size_limit()
    with pytest.raises(KeyError), long_fields():
        raise KeyError
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("separator", ",;\t|")
def test_stray_quotes_do_not_change_the_separator(tmp_path, separator):
    path = tmp_path / "t.csv"
    lines = ["name,size", '5" pipe,1', '"two\nlines",2', '6" pipe,3', '"a ""b""",4', "ok,5"]
    path.write_text("\n".join(lines).replace(",", separator))
    table = Table(str(path))
    assert table.read_all().rows() == [
        ('5" pipe', "1"),
        ("two\nlines", "2"),
        ('6" pipe', "3"),
        ('a "b"', "4"),
        ("ok", "5"),
    ]
    assert table.facts.separator == separator


def test_skipped_lines_may_contain_quotes_and_be_longer_than_a_block():
    text = 'a "title\n' + "y" * 50 + '"\nb,c\n1,2\n'
    for block in (7, 1000):
        with blocks_of(block):
            assert rows_read(text, skip_lines=2) == [("1", "2")]


def test_many_blank_lines_after_the_header_take_linear_time():
    assert rows_read("a,b\n" + "\n" * 2_000_000 + " \n" * 2 + "1,2\n", separator=None)[-1] == ("1", "2")


def test_the_last_record_may_have_line_ends_in_quotes_and_none_at_its_end(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'"a\nb",c\n"d\ne",f')
    frame = Table(str(path), layout=TextLayout(separator=",")).read_all()
    assert frame.columns == ["a\nb", "c"]
    assert frame.rows() == [("d\ne", "f")]


@given(text=TEXTS, separator=SEPARATORS, n_fields=st.integers(1, 6))
def test_the_first_wide_record_is_found(text, separator, n_fields):
    text = text.replace("S", separator)
    widths = [len(row) for row in rows_of_csv(text, separator)]
    expected = next((i for i, width in enumerate(widths) if width > n_fields), None)
    with patch.object(csv_records, "MAX_FIELDS", n_fields):
        assert first_wide_record(text.encode(), separator) == expected


WIDE = "," * MAX_FIELDS
ROWS = "1,2\n" * 60  # the first 50 are examined with the header


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"a,b\n{ROWS}{WIDE}\n3,4\n", "row 61 has more than 100,000 fields"),
        (f'a,b\n{ROWS}1,2"\n\n{WIDE}x\n3,4\n', "row 62 has more than 100,000 fields"),
        (f'a,b\n{ROWS},"\n"{WIDE}\n3,4\n', "row 61 has more than 100,000 fields"),
        (f"a,b\n1,2\n{WIDE}\n3,4\n", "one of the first lines has more than 100,000 fields"),
        (f"{WIDE}\n1,2\n", "one of the first lines has more than 100,000 fields"),
        (f"{WIDE.replace(',', '|')}\n1,2\n", "one of the first lines has more than 100,000 fields"),
    ],
)
def test_a_record_with_too_many_fields_is_refused(tmp_path, text, problem):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=f"t.csv: {problem}"):
        Table(str(path)).read_all()


def test_separators_in_quotes_are_no_fields(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f'a,b\n1,"{WIDE}"\n5" pipe,"{WIDE}\n{WIDE}"\n')
    assert Table(str(path)).read_all().rows() == [("1", WIDE), ('5" pipe', f"{WIDE}\n{WIDE}")]


def test_a_table_may_have_many_columns(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"{','.join(f'c{j}' for j in range(MAX_FIELDS))}\n{WIDE[1:]}\n")
    assert Table(str(path)).read_all().shape == (1, MAX_FIELDS)
