"""How features are read survives a model file; a description that was altered is refused."""

import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.tables.column_notes import columns_from_notes, notes_of_columns
from imondrian.tables.dates import DateFormat
from imondrian.tables.feature_columns import FeatureColumn
from imondrian.tables.number_formats import NumberFormat

COLUMNS = [
    FeatureColumn("a", "number", "a"),
    FeatureColumn("b", "category", "b"),
    FeatureColumn("c", "number", "c", NumberFormat(",", ".")),
    FeatureColumn("t (hour)", "hour", "t", date_format=DateFormat("%H:%M")),
]


def test_only_what_is_not_plain_is_stored():
    assert list(columns_from_notes(notes_of_columns(COLUMNS), "m.imf").values()) == COLUMNS[2:]
    assert notes_of_columns(COLUMNS[:2]) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 1),
        ("column", None),
        ("kind", "list"),
        ("number_format", [".", "."]),
        ("number_format", ["x", ""]),
        ("number_format", 5),
        ("date_format", "%Q"),
        ("date_format", []),
    ],
)
def test_invalid_descriptions_are_refused(field, value):
    note = {**notes_of_columns(COLUMNS)[0], field: value}
    with pytest.raises(InvalidInputError, match=r"m.imf: the description of the columns is invalid"):
        columns_from_notes([note], "m.imf")
    with pytest.raises(InvalidInputError):
        columns_from_notes(7, "m.imf")
