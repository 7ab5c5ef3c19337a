"""Columns get unique names, in linear time."""

from imondrian.tables.column_labels import unique_names


def test_many_equal_labels_get_different_names():
    n_columns = 100_000  # in quadratic time, this would take minutes
    names = unique_names(["a"] * n_columns + ["a (3)", "b", "a"])
    assert names[:3] == ["a", "a (2)", "a (4)"]
    assert names[-4:] == [f"a ({n_columns + 1})", "a (3)", "b", f"a ({n_columns + 2})"]
    assert len(set(names)) == n_columns + 3
