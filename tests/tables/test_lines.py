"""Lines come as they arrive, whole, each once, until the end or until they are stopped."""

import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.errors import InvalidInputError
from imondrian.tables.lines import Lines
from imondrian.tables.records import as_told, is_number, number_in, numbers_in, parser_for

TEXTS = st.lists(st.binary(max_size=8).filter(lambda text: b"\n" not in text and not text.endswith(b"\r")), max_size=20)


@given(texts=TEXTS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40), has_end=st.booleans())
def test_every_line_comes_once_however_the_bytes_arrive(texts, sizes, has_end):
    content = b"\n".join(texts) + (b"\n" if has_end and texts else b"")
    reader, writer = os.pipe()
    batches = Lines(reader).batches()
    first = 0
    for size in sizes:
        os.write(writer, content[first : first + size])
        first += size
    os.write(writer, content[first:])
    os.close(writer)
    got = [line for batch in batches for line in batch.lines]
    os.close(reader)
    expected = content.split(b"\n")
    assert got == (expected[:-1] if expected[-1] == b"" else expected)


def test_a_file_that_grows_is_followed_and_one_that_is_cut_read_anew(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\nb")
    descriptor = os.open(path, os.O_RDONLY)
    lines = Lines(descriptor, follow=True)
    batches = lines.batches()
    assert next(batches) == ([b"a"], 2)
    with path.open("ab") as file:
        file.write(b"c\r\nd\ne")
    assert next(batches) == ([b"bc", b"d"], 8)
    path.write_bytes(b"x\n")  # the line that had no end yet is gone with the rest
    assert next(batches) == ([b"x"], 2)
    lines.stop()
    assert list(batches) == []
    os.close(descriptor)


def test_waiting_can_be_ended_and_what_was_read_is_still_given():
    reader, writer = os.pipe()
    lines = Lines(reader)
    batches = lines.batches()
    os.write(writer, b"a\nb")
    assert next(batches) == ([b"a"], 2)
    threading.Timer(0.05, lines.stop).start()
    assert list(batches) == []  # the line that has no end yet is not a line
    os.write(writer, b"c\n")
    assert os.read(reader, 10) == b"c\n"  # nothing is taken from the pipe any more
    os.close(writer)


def test_long_lines_and_many_lines(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 5_000_000 + b"\n" + b"y\n" * 3000)
    descriptor = os.open(path, os.O_RDONLY)
    batches = list(Lines(descriptor).batches())
    os.close(descriptor)
    assert [len(line) for batch in batches for line in batch.lines] == [5_000_000] + [1] * 3000
    assert max(len(batch.lines) for batch in batches) <= 1024
    assert batches[-1].position == path.stat().st_size


def test_what_cannot_be_read_is_an_error(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        list(Lines(descriptor).batches())
    os.close(descriptor)


def test_the_reader_does_not_run_ahead_of_the_work():
    reader, writer = os.pipe()
    batches = Lines(reader).batches()
    done = threading.Event()

    def flood():
        for _ in range(200):
            os.write(writer, b"x" * 9_999 + b"\n")
        done.set()
        os.close(writer)

    threading.Thread(target=flood, daemon=True).start()
    n_lines = len(next(batches).lines)
    time.sleep(0.2)
    assert not done.is_set()  # two megabytes do not fit into the few blocks that are read ahead
    n_lines += sum(len(batch.lines) for batch in batches)
    assert n_lines == 200


def test_csv_and_json_lines_become_records():
    parse, is_header = parser_for(b"\xef\xbb\xbfa,b c", None, None, has_header=True)
    assert is_header
    assert parse(b'1,"x,y"') == {"a": "1", "b c": "x,y"}
    parse, is_header = parser_for(b"1;2", "csv", None, has_header=False)
    assert not is_header
    assert parse(b"3;4") == {"column_1": "3", "column_2": "4"}
    parse, is_header = parser_for(b'{"a": 1}', None, None, has_header=True)
    assert not is_header
    assert parse(b'{"a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    ("first", "line", "complaint"),
    [
        (b"a,b", b"1", "1 fields, but 2 names"),
        (b"a,b", b'1,"2', "not CSV"),
        (b"a,b", b"1,\xe9", "not UTF-8"),
        (b'{"a": 1}', b"x", "not JSON"),
        (b'{"a": 1}', b"[1]", "not a JSON object"),
    ],
)
def test_a_line_that_is_no_record_is_told_why(first, line, complaint):
    parse, _ = parser_for(first, None, None, has_header=True)
    with pytest.raises(InvalidInputError, match=complaint):
        parse(line)


def test_streams_that_cannot_be_are_refused():
    with pytest.raises(InvalidInputError, match="Names of columns must differ"):
        parser_for(b"a,a", None, None, has_header=True)
    with pytest.raises(InvalidInputError, match="Parquet"):
        parser_for(b"PAR1", None, None, has_header=True)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "missing"),
        (" NA ", "missing"),
        ("nan", "missing"),
        ("q", "'q' is not a number"),
        ([1], "not a number"),
        (10**400, "not a number"),
        (float("inf"), "not finite"),
        ("1e999", "not finite"),
        (1e200, "beyond"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(value, complaint):
    with pytest.raises(InvalidInputError, match=rf"column 'a': .*{complaint}"):
        number_in({"a": value}, "a")


def test_numbers_are_numbers_as_text_too():
    assert [number_in({"a": value}, "a") for value in (1, 2.5, "3e2", " 4 ", True)] == [1.0, 2.5, 300.0, 4.0, 1.0]
    assert is_number("1")
    assert not is_number("x")
    assert not is_number(None)


def outcome(read):
    try:
        return read()
    except InvalidInputError as error:
        return str(error)


@pytest.mark.parametrize(
    "value",
    [1, 2.5, "3e2", " 4 ", True, "TRUE", None, "", "q", "1_000", "٣", "nan", "inf", 1e200, [1], 10**400],
)
def test_many_numbers_are_read_as_one_is(value):
    record = {"a": 1.5, "b": value}
    one, many = outcome(lambda: number_in(record, "b")), outcome(lambda: numbers_in(record, ["a", "b"]))
    assert many == (one if isinstance(one, str) else [1.5, one])


def test_a_feature_that_is_not_there_is_named():
    with pytest.raises(InvalidInputError, match="column 'c': the value is missing"):
        numbers_in({"a": 1}, ["a", "c"])


def test_cells_are_told_as_the_numbers_they_are():
    assert [as_told(cell, 7.0) for cell in ("7", "-7", "7.0", "7e0", 7, True)] == [7, -7, 7.0, 7.0, 7, True]
    assert as_told("x", None) == "x"
