"""What polars reads wrongly in NDJSON: repeated keys and halves of surrogate pairs are refused; the rest is read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.categories import category_text
from imondrian.base.errors import InvalidInputError
from imondrian.tables import ndjson_checks, text_parsing
from imondrian.tables.table_reader import Table


def read(folder, *lines):
    path = folder / "t.ndjson"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return Table(str(path)).read_all()


@pytest.mark.parametrize(
    "line",
    [
        '{"a": 1, "a": 2}',
        '{"a":1,"b":2,"a":3}',
        '{"a" : 1, "a"\t: 2}',
        '{"a": 1, "a"\r: 2}',
        '{"a": 1, "a" \t\r: 2}',
        '{"b": "12:30", "a": 1, "a": 2}',
        '{"a": null, "b": null, "a": 2}',
        '{"a": "null", "b": "x", "a": "null"}',
        '{"a": 1, "b": 2, "\\u0061": 3}',
    ],
)
@pytest.mark.parametrize("others", [['{"a": 1}'], ['{"a": 1, "b": null}'], ['{"b": 5, "a": null}', "", '{"a": 5}']])
def test_a_key_that_appears_twice_is_refused(tmp_path, line, others):
    lines = [*others, line]
    with pytest.raises(InvalidInputError, match=rf"t.ndjson: line {len(lines)}: the key 'a' appears more than once"):
        read(tmp_path, *lines, '{"b": "c"}')


def test_a_key_that_appears_twice_in_a_nested_object_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="line 1: the key 'x' appears more than once"):
        read(tmp_path, '{"a": {"x": 1, "x": 2}}')


TEXTS = st.sampled_from(["", "12:30", '":', "null", "\\", ': null"'])
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS


def nested(values):
    return values | st.lists(values, max_size=2) | st.dictionaries(st.sampled_from("xyz"), values, max_size=2)


VALUES = nested(nested(SCALARS))


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", '"', ":"]), VALUES, min_size=1), min_size=1, max_size=4))
def test_other_objects_are_accepted(tmp_path_factory, records):
    assert read(tmp_path_factory.mktemp("t"), *map(json.dumps, records)).height == len(records)


@pytest.mark.parametrize("value", [1.5, None, "a", "12:30", {"x": {"y": None}}, [{"x": 1}, {"y": "12:30"}]])
def test_lines_of_ordinary_tables_are_not_decoded_twice(tmp_path, monkeypatch, value):
    monkeypatch.setattr(ndjson_checks, "decode_json", pytest.fail)
    records = [{"id": i, "a": value, "text": "x"} for i in range(9)]
    assert read(tmp_path, *map(json.dumps, records), '{"id": 9}').height == 10
    assert read(tmp_path, *(json.dumps(record, separators=(",", ":")) for record in records)).height == 9


def test_numbers_beside_text_are_the_categories_of_the_numbers(tmp_path):
    numbers = ("-0.0", "1e2", "0.10", "1e-7", "12", "1.5e300")
    frame = read(tmp_path, '{"a": "x"}', *(f'{{"a": {number}}}' for number in numbers))
    assert frame["a"].to_list() == ["x", *map(category_text, map(json.loads, numbers))]


@pytest.mark.parametrize("key", ['"é"', '"\\u00e9"'])
def test_numbers_beside_text_are_found_under_an_escaped_key(tmp_path, key):
    assert read(tmp_path, f'{{{key}: "x"}}', f"{{{key} : -0.0}}")["é"].to_list() == ["x", "0"]


def test_text_that_looks_like_a_number_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(text_parsing, "_parse_by_line", pytest.fail)
    frame = read(tmp_path, '{"a": "0.10"}', '{"a": "x"}', '{"a": "-0"}')
    assert frame["a"].to_list() == ["0.10", "x", "-0"]


@pytest.mark.parametrize("text", [r"\ud800", r"\uDBFFx", r"\udc00", r"\ud800\ud800\udc00", r"\udc00\ud800"])
def test_half_of_a_surrogate_pair_is_refused(tmp_path, text):
    with pytest.raises(InvalidInputError, match=r"t.ndjson: line 3 has half of a surrogate pair, which is not text\."):
        read(tmp_path, '{"a": "x"}', "", f'{{"a": "{text}"}}')


@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\uD83D\uDE00\ud83d\ude00", r"\\ud800"])
def test_whole_pairs_of_surrogates_are_read(tmp_path, text):
    assert read(tmp_path, f'{{"a": "{text}"}}')["a"].to_list() == [json.loads(f'"{text}"')]
