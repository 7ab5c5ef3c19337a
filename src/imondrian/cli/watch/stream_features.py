"""The features of a stream, chosen from its first record, and their values in every record."""

import json
import math
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from imondrian.base.categories import category_code
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.rows.named_rows import CodedRows
from imondrian.stream.detector import StreamDetector
from imondrian.tables.cells import as_cell, shown
from imondrian.tables.dates import recognise_dates
from imondrian.tables.feature_columns import result_names
from imondrian.tables.line_records import Values, category_in, is_missing, is_number, number_in, numbers_or_none
from imondrian.tables.number_formats import recognise_format

NO_VALUE = "every value is missing."
_WORDS_OF_FREE_TEXT = 4  # text of at least this many words is not a category
_code = lru_cache(maxsize=2**16)(category_code)


class StreamFeatures(NamedTuple):
    """The features of a stream."""

    names: list[str]
    categorical: frozenset[int] = frozenset()  # indices of the features that are categories
    allows_gaps: bool = False  # False: a missing value is an error

    def values(self, record: Values) -> list[Any]:
        """Return the values of the features: numbers, or NaN if missing; categories as text, or None if missing.

        Raises
        ------
        InvalidInputError
            If a value has the wrong type or is not finite, if all values are missing, or if one is missing and gaps are
            not allowed.
        """
        numbers = None if self.categorical else numbers_or_none(record, self.names)
        if numbers is not None:
            return numbers
        values = [self._value(record, j) for j in range(len(self.names))]
        if all(value is None or value != value for value in values):  # noqa: PLR0124 (NaN)
            raise InvalidInputError(NO_VALUE)
        return values

    def named(self, values: list[Any]) -> dict[str, Any]:
        """Return values by name."""
        return dict(zip(self.names, values, strict=True))

    def points(self, rows: list[list[Any]]) -> Array:
        """Return rows of values as an array with the codes of categories."""
        if not self.categorical:
            return np.array(rows)
        coded = [[_code(value) if j in self.categorical else value for j, value in enumerate(row)] for row in rows]
        return np.array(coded).view(CodedRows)

    def texts(self, values: list[Any]) -> dict[int, str]:
        """Return the categories of a row by the index of the feature; missing ones are left out."""
        return {j: values[j] for j in self.categorical if values[j] is not None}

    def _value(self, record: Values, j: int) -> Any:
        name = self.names[j]
        if self.allows_gaps and is_missing(record.get(name)) and j not in self.categorical:
            return math.nan
        if j not in self.categorical:
            return number_in(record, name)
        category = category_in(record, name)
        if category is None and not self.allows_gaps:
            raise InvalidInputError(f"column {name!r}: the value is missing.")
        return category


def has_code(category: Any, code: float) -> bool:
    """Return True if a category has this code; the category must not be missing."""
    return bool(_code(category) == code)


class StreamChoice(NamedTuple):
    """What the user says about the columns of a stream."""

    features: Collection[str] = ()  # columns to use; if empty, all usable columns
    ignore: Collection[str] = ()
    categorical: Collection[str] = ()  # columns of numbers that are categories
    time: str | None = None
    keys: Collection[str] = ()  # columns that say to which detector a row belongs
    numbers_required_by: str = ""  # the option that requires all features to be numbers, such as "--by"; "": none does

    def has_no_value(self, record: Values) -> bool:
        """Return True if everything in a record that could be a feature is missing."""
        others = {*self.ignore, *self.keys, *result_names(record), self.time}
        names = list(self.features) or [name for name in record if name not in others]
        return bool(names) and all(is_missing(record[name]) for name in names)

    def choose(self, record: Values, *, allows_gaps: bool) -> tuple[StreamFeatures, dict[str, str]]:
        """Choose the features from the first record; return them, and the reasons why other columns are not features.

        Raises
        ------
        InvalidInputError
            If no column can be used, or if a chosen column is a category and `numbers_required_by` is set.
        """
        reasons = {name: self._why_not(value) for name, value in record.items() if name not in self.categorical}
        reasons |= dict.fromkeys(result_names(record), "result of an earlier run")
        reasons |= dict.fromkeys(self.ignore, "ignored")
        reasons |= {} if self.time is None else {self.time: "the timestamp column"}
        reasons |= dict.fromkeys(self.keys, "the key")
        names = list(self.features) or [name for name in record if not reasons.get(name)]
        if not names:
            raise InvalidInputError(f"No column of the first row can be used as a feature: {json.dumps(record)[:200]}.")
        categorical = frozenset(
            j for j, name in enumerate(names) if name in self.categorical or _is_category(record[name])
        )
        if self.numbers_required_by and categorical:
            text = names[min(categorical)]
            raise InvalidInputError(
                f"With {self.numbers_required_by}, all features must be numbers, but column {text!r} is"
                f" {shown(record[text])} in the first row: leave it out of --features."
            )
        left_out = {name: reasons.get(name) or "not among the chosen features" for name in record if name not in names}
        return StreamFeatures(names, categorical, allows_gaps), left_out

    def _why_not(self, value: Any) -> str:
        """Like `_why_not_feature`, but with `numbers_required_by` a category is not a feature either."""
        reason = _why_not_feature(value)
        is_refused = not reason and self.numbers_required_by and _is_category(value)
        return (
            f"not a number, but with {self.numbers_required_by} all features must be numbers" if is_refused else reason
        )


def features_of_detector(detector: StreamDetector) -> StreamFeatures | None:
    """Return the features of a detector; None if they have no names yet."""
    if detector.feature_names is None:
        return None
    names = [str(name) for name in detector.feature_names]
    categorical = frozenset(
        j if isinstance(j, int) else names.index(str(j)) for j in detector.parameters["categorical"]
    )
    return StreamFeatures(names, categorical, detector.parameters["missing"] != "raise")


def _is_category(value: Any) -> bool:
    """Return True if a value of the first record is a category: text that is not a number, or a boolean."""
    is_boolean = isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ("true", "false"))
    return is_boolean or (isinstance(value, str) and not is_missing(value) and not is_number(value))


def _why_not_feature(value: Any) -> str:
    """Return why a column with this value in the first record is not a feature; an empty string if it is one."""
    if is_missing(value):
        return "missing in the first row; use --features to include it"
    if not isinstance(value, (str, int, float)):
        return "neither a number nor text"
    if not isinstance(value, str) or not _is_category(value):
        return ""
    cell = as_cell(value)
    if recognise_dates(cell) is not None:
        return "a date or time"
    if recognise_format(cell) is not None:
        return "a number that is not written plainly (plain: 1234.5)"
    return "free text" if len(value.split()) >= _WORDS_OF_FREE_TEXT else ""
