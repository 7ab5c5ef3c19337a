"""How the features of a model are read from columns, as stored in a model file."""

from typing import Any

from imondrian.base.errors import InvalidInputError
from imondrian.tables.dates import DateFormat, is_known_format
from imondrian.tables.feature_columns import FeatureColumn
from imondrian.tables.number_formats import DECIMALS, THOUSANDS, NumberFormat


def notes_of_columns(features: list[FeatureColumn]) -> list[dict[str, Any]]:
    """Return how features are read, as JSON values; plain numbers and categories are left out."""
    return [_note(feature) for feature in features if feature != _plain(feature)]


def columns_from_notes(notes: Any, source: str) -> dict[str, FeatureColumn]:
    """Return the features that `notes_of_columns` described, by name.

    Raises
    ------
    InvalidInputError
        If the notes are invalid; the message begins with `source`.
    """
    try:
        features = [_feature(note) for note in notes]
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(f"{source}: the description of the columns is invalid: {notes!r:.200}.") from None
    return {feature.name: feature for feature in features}


def _plain(feature: FeatureColumn) -> FeatureColumn:
    return FeatureColumn(feature.name, "category" if feature.is_category else "number", feature.name)


def _note(feature: FeatureColumn) -> dict[str, Any]:
    number, date = feature.number_format, feature.date_format
    return {
        "name": feature.name,
        "kind": feature.kind,
        "column": feature.column,
        "number_format": None if number is None else list(number),
        "date_format": None if date is None else date.text,
    }


def _feature(note: Any) -> FeatureColumn:
    """Return the feature that a note describes; raise KeyError, TypeError or ValueError if it is invalid."""
    name, kind, column = note["name"], note["kind"], note["column"]
    if (
        not isinstance(name, str)
        or not isinstance(column, str)
        or kind not in ("number", "category", "weekday", "hour")
    ):
        raise ValueError
    number, date = note["number_format"], note["date_format"]
    if date is not None and not is_known_format(date):
        raise ValueError
    number_format = None if number is None else _number_format(*number)
    return FeatureColumn(name, kind, column, number_format, None if date is None else DateFormat(date))


def _number_format(decimal: Any, thousands: Any) -> NumberFormat:
    if decimal not in DECIMALS or thousands not in ("", *THOUSANDS) or thousands == decimal:
        raise ValueError
    return NumberFormat(decimal, thousands)
