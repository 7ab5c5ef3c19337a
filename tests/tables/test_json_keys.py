"""Keys that appear more than once in NDJSON are refused; everything else is read as before."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables import json_keys
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
    monkeypatch.setattr(json_keys, "decode_json", pytest.fail)
    records = [{"id": i, "a": value, "text": "x"} for i in range(9)]
    assert read(tmp_path, *map(json.dumps, records), '{"id": 9}').height == 10
    assert read(tmp_path, *(json.dumps(record, separators=(",", ":")) for record in records)).height == 9
