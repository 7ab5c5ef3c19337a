"""Lines are parsed into records, and records are written back verbatim."""

import json
import math
import tracemalloc

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables.cells import parse_column
from imondrian.tables.line_records import is_number, number_in, numbers_in, parse_json_line, parser_for
from imondrian.tables.verbatim_json import json_members


def test_csv_and_json_lines_become_records():
    parse, is_header = parser_for(b"\xef\xbb\xbfa,b c", None, None, has_header=True)
    assert is_header
    assert parse(b'1,"x,y"').values == {"a": "1", "b c": "x,y"}
    parse, is_header = parser_for(b"1;2", "csv", None, has_header=False)
    assert not is_header
    assert parse(b"3;4").values == {"column_1": "3", "column_2": "4"}
    parse, is_header = parser_for(b'{"a": 1}', None, None, has_header=True)
    assert not is_header
    assert parse(b'{"a": 2}').values == {"a": 2}
    assert parse(b'\xef\xbb\xbf{"a": 2}').values == {"a": 2}  # at the start of another file


@pytest.mark.parametrize(
    ("first", "line", "message"),
    [
        (b"a,b", b"1", "1 fields, but there are 2 columns"),
        (b"a,b", b'1,"2', "not CSV"),
        (b"a,b", b"1,\xe9", "not UTF-8"),
        (b'{"a": 1}', b"x", "not JSON"),
        (b'{"a": 1}', b"[1]", "not a JSON object"),
        (b'{"a": 1}', b'{"a": "\xe9"}', "not UTF-8"),
        (b'{"a": 1}', b'{"a": 1, "b": 2, "a": 3}', "the key 'a' appears more than once"),
        (b'{"a": 1}', b'{"a": 1, "b": [{"c": 1, "\\u0063": 1}]}', "the key 'c' appears more than once"),
        (b'{"a": 1}', b'{"a": ' + b"9" * 5000 + b', "a": 3}', "the key 'a' appears more than once"),
        (b'{"a": 1}', b'{"a": ' + b"9" * 5000, "not JSON"),
    ],
)
def test_a_line_that_is_not_a_record_raises_with_the_reason(first, line, message):
    parse, _ = parser_for(first, None, None, has_header=True)
    with pytest.raises(InvalidInputError, match=message):
        parse(line)


def test_duplicate_column_names_and_parquet_streams_are_refused():
    with pytest.raises(InvalidInputError, match="Column names must be unique"):
        parser_for(b"a,a", None, None, has_header=True)
    with pytest.raises(InvalidInputError, match="parquet cannot be read line by line"):
        parser_for(b"PAR1", None, None, has_header=True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "missing"),
        (" NA ", "missing"),
        ("nan", "missing"),
        ("q", "'q' is not a number"),
        ("\u0663", "is not a number"),
        ([1], "not a number"),
        (10**400, "exceeds"),
        (-(10**400), "exceeds"),
        ("9" * 5000, r"'9{59}\.\.\. is not finite"),
        ("x" * 5000, r"'x{59}\.\.\. is not a number"),
        (float("inf"), "not finite"),
        ("1e999", "not finite"),
        (1e200, "exceeds"),
    ],
)
def test_an_unusable_value_is_named(value, message):
    with pytest.raises(InvalidInputError, match=rf"column 'a': .*{message}"):
        number_in({"a": value}, "a")


def test_numbers_may_be_written_as_text():
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
def test_numbers_in_agrees_with_number_in(value):
    record = {"a": 1.5, "b": value}
    one, many = outcome(lambda: number_in(record, "b")), outcome(lambda: numbers_in(record, ["a", "b"]))
    assert many == (one if isinstance(one, str) else [1.5, one])


def test_a_missing_feature_is_named():
    with pytest.raises(InvalidInputError, match="column 'c': the value is missing"):
        numbers_in({"a": 1}, ["a", "c"])


def test_an_integer_of_any_length_is_read():
    values = parse_json_line(b'{"a": ' + b"9" * 5000 + b', "b": [-' + b"9" * 5000 + b'], "c": 1}').values
    assert values == {"a": "9" * 5000, "b": ["-" + "9" * 5000], "c": 1}


def csv_as_json(cell):
    parse, _ = parser_for(b"a", "csv", ",", has_header=True)
    return "{" + json_members(parse(cell.encode()), {"a"}) + "}"


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *((literal, literal) for literal in ("7", "-7", "7.0", "7e0", "-0", "1E5", "1.10", "1e-400", "9" * 30)),
        ("0.1000000000000000000000000000000001", "0.1000000000000000000000000000000001"),
        ("007", "7"),
        ("-007.50", "-7.50"),
        ("0" * 5000 + "7", "7"),
        (" +4 ", "4"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("TRUE", "1.0"),
        *((text, json.dumps(text)) for text in ("x", "NA", "é", "1e400", "-inf", "1_0", "9" * 400, "9" * 5000)),
    ],
)
def test_a_feature_cell_is_written_back_as_a_number_or_as_text(cell, expected):
    assert csv_as_json(cell) == f'{{"a": {expected}}}'


def test_column_names_may_have_any_characters():
    parse, _ = parser_for('100%,"é""%s"'.encode(), None, None, has_header=True)
    assert json_members(parse(b"1,2"), {"100%"}) == '"100%": 1, "\\u00e9\\"%s": "2"'


def test_cells_that_are_not_features_stay_text():
    parse, _ = parser_for(b"a,b", None, None, has_header=True)
    assert json_members(parse(b'"1,2",3'), {"a", "b"}) == '"a": "1,2", "b": 3'
    assert json_members(parse(b"1,2"), {"b"}) == '"a": "1", "b": 2'
    assert json_members(parse(b"1,2"), {"b"}, {"a"}) == '"b": 2'


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(
    record=st.dictionaries(st.text(), JSON_VALUES, max_size=6),
    is_ascii=st.booleans(),
    separators=st.sampled_from([(",", ":"), (" ,\t", " :  ")]),
    data=st.data(),
)
def test_a_json_object_is_written_back_verbatim(record, is_ascii, separators, data):
    def as_json(part):
        return json.dumps(part, ensure_ascii=is_ascii, separators=separators)

    parsed = parse_json_line(f" {as_json(record)} ".encode())
    assert "{" + json_members(parsed, set()) + "}" == as_json(record)
    left_out = data.draw(st.sets(st.sampled_from([*record, "another"]), min_size=1))
    kept = [as_json({key: value})[1:-1] for key, value in record.items() if key not in left_out]
    assert json_members(parsed, set(), left_out) == ", ".join(kept)


@pytest.mark.parametrize(
    "literal", ["1e400", "1.0", "1E5", "-0.0", "9" * 30, "9" * 5000, '"3"', '"\\u00e9é"', "[1.50]"]
)
def test_a_json_value_is_written_back_verbatim(literal):
    record = parse_json_line(f'{{"b": 1,"a" : {literal}}}'.encode())
    assert json_members(record, {"a"}) == f'"b": 1,"a" : {literal}'
    assert json_members(record, {"a"}, {"b"}) == f'"a" : {literal}'


@pytest.mark.parametrize("text", ["x" * 2**20, '\\\\"' * 2**19])
def test_a_long_text_in_a_line_takes_a_small_multiple_of_its_length_in_memory(text):
    line = json.dumps({"a": [[]] * 101, "b": text, "c": math.nan}).encode()
    tracemalloc.start()
    record = parse_json_line(line)
    written = json_members(record, set())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert json.loads("{" + written + "}") == {"a": [[]] * 101, "b": text, "c": None}
    assert peak < 16 * len(line)


def test_nan_and_infinity_become_null():
    record = parse_json_line(b'{"a": NaN, "NaN": [-Infinity, "say \\"NaN\\" -Infinity", {"x":Infinity}]}')
    assert json_members(record, set()) == '"a": null, "NaN": [null, "say \\"NaN\\" -Infinity", {"x":null}]'


def test_a_header_is_recognised_by_its_names():
    parse, _ = parser_for(b"a,b,c", None, None, has_header=True)
    assert [parse.is_header(line) for line in (b"a,b,c", b"c,a,b", b"a,b,c,d", b'"a",c')] == [True] * 4
    assert [parse.is_header(line) for line in (b"1,2,3", b"a,2,3", b"x,y,z", b"a,b,\xe9")] == [False] * 4


def test_a_line_with_too_many_fields_is_refused():
    parse, _ = parser_for(b"a,b", None, None, has_header=True)
    with pytest.raises(InvalidInputError, match="the line has more than 100,000 fields"):
        parse(b"," * 100_000)
    with pytest.raises(InvalidInputError, match="the line has more than 100,000 fields"):
        parser_for(b"," * 100_000, None, None, has_header=True)
    assert parse(b'1,"%s"' % (b"," * 100_000)).values == {"a": "1", "b": "," * 100_000}


@pytest.mark.parametrize("text", ["3", " 3 ", "3\u00a0", "\u2009\t3"])
def test_blanks_around_a_number_are_ignored(text):
    assert number_in({"a": text}, "a") == 3.0
    assert parse_column(pl.Series("a", [text])).numbers.to_list() == [3.0]
