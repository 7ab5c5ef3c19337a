"""Parsing of bodies: any valid JSON is accepted, however it is formatted; invalid bodies are cheap to refuse."""

import json
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from imondrian.base.categories import category_code
from imondrian.base.errors import InvalidInputError
from imondrian.service.changes.posted_rows import RowFormat
from imondrian.service.changes.row_labels import labels_from
from imondrian.service.http.bodies import object_of, rows_of

JSON, LINES = "application/json", "application/x-ndjson"
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(-1e100, 1e100))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
CATEGORIES = st.one_of(TEXTS, st.booleans(), st.integers(-(2**60), 2**60), st.floats(-1e9, 1e9), st.none())
NAMES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True)


def points_of(body, content_type, names, max_points):
    return rows_of(body, content_type, RowFormat(names), max_points).points


@st.composite
def tables(draw):
    names = draw(NAMES)
    rows = draw(st.lists(st.lists(NUMBERS, min_size=len(names), max_size=len(names)), min_size=1, max_size=5))
    return names, rows


@given(tables(), st.sampled_from([None, 0, 3]), st.booleans())
@example((['"},[{"', "]}", "\\"], [[1, 2, 3]] * 3), None, True)
def test_tables_are_parsed_whatever_their_formatting(table, indent, is_ascii):
    names, rows = table
    expected = np.array(rows, float)
    records = [dict(zip(names, row, strict=True)) for row in rows]
    for points in (rows, records):
        body = json.dumps({"points": points}, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
        if b"\xed" not in body:  # a lone surrogate is not text
            assert np.array_equal(points_of(body, JSON, names, 5), expected)
        lines = "\n".join(json.dumps(point) for point in points).encode()
        assert np.array_equal(points_of(lines, LINES, names, 5), expected)


@given(st.lists(CATEGORIES, min_size=1, max_size=6), st.sampled_from([None, 0, 3]), st.booleans())
@example(['"},[{"', "]}", "\\", "],[1,", "\x00\n\x7f", "\U0001f600"], None, True)
def test_categories_are_returned_as_they_were_posted(values, indent, is_ascii):
    rows = [[1.5, value] for value in values]
    records = [{"country": value, "amount": 1.5} for value in values]
    row_format = RowFormat(["amount", "country"], frozenset([1]), allows_gaps=True)
    for points in (rows, records):
        body = json.dumps({"points": points}, indent=indent, ensure_ascii=is_ascii).encode()
        lines = "\n".join(json.dumps(point, ensure_ascii=is_ascii) for point in points).encode()
        for found in (rows_of(body, JSON, row_format, 9), rows_of(lines, LINES, row_format, 9)):
            assert found.points.tolist() == [[1.5, category_code(value)] for value in values]
            stored = labels_from(found.labels.to_bytes())
            shown = stored.values(found.points, [1])
            assert list(map(category_code, (row[1] for row in shown))) == list(map(category_code, values))
            texts = [value for value in values if isinstance(value, str)]
            if len(texts) == len(values):
                assert [row[1] for row in shown] == texts


@pytest.mark.parametrize("n_features", [1, 3, 1000])
def test_large_bodies_give_the_same_rows_as_numpy(n_features):
    X = np.random.default_rng(0).normal(size=(60_000 // n_features, n_features))
    names = [f"x{j}" for j in range(n_features)]
    assert np.array_equal(points_of(json.dumps({"points": X.tolist()}).encode(), JSON, names, 60_000), X)
    lines = "\r\n".join(map(json.dumps, X.tolist())).encode()
    assert np.array_equal(points_of(lines, LINES, names, 60_000), X)


def test_invalid_values_are_reported_with_their_row_in_the_whole_body():
    for text, shown in (("1e300", r"1e\+300"), ("-1e999", "-Infinity")):
        body = b'{"points": [%s[1.0, %s]]}' % (b"[1.0, 2.0]," * 30_000, text.encode())
        message = rf"'y' of point 30000 must be at most 1e\+153 in absolute value, but is {shown}\."
        with pytest.raises(InvalidInputError, match=message):
            points_of(body, JSON, ["x", "y"], 100_000)
    body = json.dumps({"points": [[1.0, 2.0]] * 30_000 + [[1.0]]}).encode()
    with pytest.raises(InvalidInputError, match="Point 30000 must be a list of 2 values"):
        points_of(body, JSON, ["x", "y"], 100_000)


WASTEFUL = {
    "empty lists": b'{"points": [' + b"[]," * 10**6 + b"[]]}",
    "empty objects": b'{"points": [' + b"{}," * 10**6 + b"{}]}",
    "small lists": b'{"points": [' + b"[1]," * 10**6 + b"[1]]}",
    "one long list": b'{"points": [[' + b"1," * 10**6 + b"1]]}",
    "one long object": b'{"points": [{' + b'"":1,' * 10**6 + b'"":1}]}',
    "one long key": b'{"points": [{"' + b"a" * 10**6 + b'":1}]}',
    "deep lists": b'{"points": [' + b"[" * 10**6,
    "another key": b'{"points": [[1]], "more": [' + b"[]," * 10**6 + b"[]]}",
    "another first key": b'{"more": [' + b"[]," * 10**6 + b"[]]}",
    "space": b'{"points": [[1]' + b" " * 10**6 + b"]}",
}


@pytest.mark.parametrize("name", WASTEFUL)
def test_refusing_a_body_needs_little_memory(name):
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError):
            points_of(WASTEFUL[name], JSON, ["x"], 1000)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"points": [[1, 2]], "points": [[3, 4]]}', "points"),
        (b'{"points": [[1, 2]], "p\\u006fints": 3}', "points"),
        (b'{"points": [{"x": 1, "y": 2, "x": 1}]}', "x"),
        (b'{"points": [{"x": 1, "y": 2}, {"y": 1, "x": 1, "\\u0079": 1}]}', "y"),
    ],
)
def test_duplicate_keys_are_refused(body, name):
    with pytest.raises(InvalidInputError, match=f"'{name}' more than once"):
        points_of(body, JSON, ["x", "y"], 5)


def test_duplicate_keys_are_refused_at_any_depth():
    with pytest.raises(InvalidInputError, match="'b' more than once"):
        object_of(b'[{"a": [{"b": 1, "c": 2, "b": 3}]}]')
    assert object_of(b' {"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]} ') == {"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10**5, b"{}{}", b'{"a": ' + b"1" * 5_000 + b"}"])
def test_a_body_that_is_not_json_is_refused(body):
    with pytest.raises(InvalidInputError, match=r"^The body is not valid JSON: "):
        object_of(body)
    with pytest.raises(InvalidInputError, match=r"must be a JSON object, but begins with b'\[\]'"):
        object_of(b"[]")


LARGE = 2**25
LONG_KEYS = {
    "long": b'{"' + b"a" * LARGE + b'": [',
    "of escapes": b'{"' + b"\\n" * (LARGE // 2) + b'": [',
    "of Unicode escapes": b'{"' + b"\\u0061" * (LARGE // 6) + b'": [[1]]}',
    "that does not end": b'{"' + b"\\a" * (LARGE // 2),
    "after the points": b'{"points": [[1]], "' + b"\\n" * (LARGE // 2) + b'": 1}',
}


@pytest.mark.parametrize("body", LONG_KEYS.values(), ids=LONG_KEYS.keys())
def test_a_long_key_is_refused_without_scanning_all_of_it(body):
    start = time.process_time()
    with pytest.raises(InvalidInputError) as raised:
        points_of(body, JSON, ["x"], 10)
    assert time.process_time() - start < 0.1  # scanning all of it would take half a second and block all threads
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b" " * LARGE, JSON),
        (b'{"points": [' + b" " * LARGE + b"]}", JSON),
        (b'{"points": [[1]]}' + b" " * LARGE + b"1", JSON),
        (b"1" * LARGE, LINES),
        (b"\n" * LARGE, LINES),
    ],
)
def test_bodies_of_white_space_and_long_lines_are_refused(body, kind):
    with pytest.raises(InvalidInputError) as raised:
        points_of(body, kind, ["x"], 10)
    assert len(str(raised.value)) < 500


def test_long_white_space_is_allowed_before_and_after_the_points():
    space = b" \n" * 200_000
    assert points_of(space + b'{"points": [[1]]}' + space, JSON, ["x"], 10).tolist() == [[1.0]]
    assert points_of(space + b"[1]" + space + b"[2]" + space, LINES, ["x"], 10).tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_every_depth_of_nesting_is_refused(opening):
    """Python reads a little more nesting than it writes, and the message shows the value."""
    closing = "]" if opening == "[" else "}"
    for depth in (1, 10, *range(850, 1_010), 10_000):
        value = f"{opening * depth}1{closing * depth}"
        for body, content_type in ((f'{{"points":[[1,{value}]]}}', ""), (f"[1,{value}]", "application/x-ndjson")):
            with pytest.raises(InvalidInputError):
                rows_of(body.encode(), content_type, RowFormat(["x", "y"]), 10)
