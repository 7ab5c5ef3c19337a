"""Choose the feature columns of a table, and read their values as points; errors name the row and the column."""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from imondrian.base.categories import MISSING_CODE, category_codes
from imondrian.base.column_names import BORROWED, NO_NAME, RESULTS, SCORE
from imondrian.base.errors import InvalidInputError
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_VALUE
from imondrian.tables.cells import (
    ParsedColumn,
    are_booleans,
    as_integers_or_floats,
    booleans_as_numbers,
    category_cells,
    parse_column,
    shown,
    without_missing_texts,
)
from imondrian.tables.column_contents import ColumnContent, content_of, with_common_decimal
from imondrian.tables.dates import DateFormat, as_datetimes, format_for_model, hours, recognise_dates, weekdays
from imondrian.tables.number_formats import NO_RULES, FormatRules, NumberFormat, parse_formatted

FeatureKind = Literal["number", "category", "weekday", "hour"]
_MAX_REASONS = 10  # in an error message


class NotANumberError(InvalidInputError):
    """A cell of a column of numbers is not a number."""

    column: str


class FeatureColumn(NamedTuple):
    """A feature, and how its values are read from a column."""

    name: str
    kind: FeatureKind
    column: str
    number_format: NumberFormat | None = None  # None: plain numbers
    date_format: DateFormat | None = None

    @property
    def is_category(self) -> bool:
        """Whether the values are categories, not numbers."""
        return self.kind != "number"


class ColumnRules(NamedTuple):
    """What the user says about the columns."""

    features: Collection[str] = ()  # columns to use; if empty, all that can be used
    ignore: Collection[str] = ()  # columns not to use
    categorical: Collection[str] = ()  # columns of numbers that are categories
    time: str | None = None  # the timestamp column, which is not a feature
    id: str | None = None  # the column that identifies a row, which is not a feature
    calendar: bool = False  # True: the weekday and hour of dates are features
    formats: FormatRules = NO_RULES
    decimal_hint: str | None = None  # the decimal separator to assume where numbers do not determine it

    def names(self) -> list[str]:
        """Return all columns that are named."""
        single = [name for name in (self.time, self.id) if name is not None]
        return [*self.features, *self.ignore, *self.categorical, *single]


class FeatureChoice(NamedTuple):
    """The features, for every other column the reason why it is not a feature, and notes on what was decided."""

    columns: list[FeatureColumn]
    left_out: dict[str, str]
    notes: list[str]


class TableColumns:
    """The columns of a frame as possible features; the cells of a column are parsed once, when they are needed.

    Parameters
    ----------
    frame : polars.DataFrame
        A table, or a batch of it.
    first : int, default=0
        Number of rows of the table before the frame, for error messages.
    """

    def __init__(self, frame: pl.DataFrame, first: int = 0) -> None:
        self._frame = frame
        self._first = first
        self._parsed: dict[str, ParsedColumn] = {}  # numbers that `choose` has parsed and `points` has not used yet

    def choose(self, rules: ColumnRules | None = None) -> FeatureChoice:
        """Choose the features: the named columns, or else all columns of numbers and categories.

        Without `rules.features`, some columns are left out: ids, free text, constants, columns without values, row
        numbers and results of an earlier run.

        Raises
        ------
        InvalidInputError
            If a named column is missing, if a chosen column contains dates and `rules.calendar` is False, or if there
            are no features.
        """
        rules = rules or ColumnRules()
        check_names(rules.names(), self._frame.columns)
        left_out = self._left_out_by_name(rules)
        candidates = [name for name in (rules.features or self._frame.columns) if name not in left_out]
        contents = self._contents(candidates, rules)
        columns: list[FeatureColumn] = []
        for name in candidates:
            found, reason = _features_of(name, contents[name], rules)
            columns += found
            if reason:
                left_out[name] = reason
        if not columns:
            raise InvalidInputError(f"No column can be used as a feature ({_in_words(left_out)}).")
        columns = _with_unique_names(columns, self._frame.columns)
        in_order = {name: left_out[name] for name in self._frame.columns if name in left_out}
        return FeatureChoice(columns, in_order, _notes(columns, contents))

    def features_of_model(
        self, names: list[str], categorical: Collection[str], known: Mapping[str, FeatureColumn], rules: ColumnRules
    ) -> FeatureChoice:
        """Return how to read the features of a model; formats that the model file does not store are recognised.

        Parameters
        ----------
        names : list of str
            The features of the model.
        categorical : collection of str
            Those that are categories.
        known : mapping of str to FeatureColumn
            How some of the features are read, as stored in the model file.
        rules : ColumnRules
            What the user says; only the formats of numbers matter. `decimal_hint`, which comes from the separator of
            CSV fields, is ignored: numbers that look plain are read as plain, unless other columns, or formats stored
            in the model, have a decimal comma.
        """
        decimals = {each.number_format.decimal for each in known.values() if each.number_format is not None}
        rules = rules._replace(decimal_hint=decimals.pop() if len(decimals) == 1 else None)
        numbers = [name for name in names if name not in categorical and (name not in known or any(rules.formats))]
        contents = self._contents([name for name in numbers if name in self._frame.columns], rules)
        formats = {name: content.number_format for name, content in contents.items()}
        columns = [
            self._with_own_dates(known[name])
            if name in known and name not in formats
            else FeatureColumn(name, "category" if name in categorical else "number", name, formats.get(name))
            for name in names
        ]
        return FeatureChoice(columns, {}, _notes(columns, contents))

    def _with_own_dates(self, feature: FeatureColumn) -> FeatureColumn:
        """Return how to read a feature of a model, with the format in which the table has its dates."""
        if feature.kind not in ("weekday", "hour") or feature.column not in self._frame.columns:
            return feature
        cells = category_cells(self._frame[feature.column])
        return feature._replace(date_format=format_for_model(cells, feature.date_format))

    def points(self, features: Iterable[FeatureColumn]) -> Array:
        """Return the values of the features, one row per point.

        Missing numbers are NaN. Categories are represented by their codes (see `category_codes`).

        Raises
        ------
        InvalidInputError
            If a cell of a column of numbers is not a number, is not finite, or exceeds MAX_VALUE in absolute value. The
            message names the row and the column.
        """
        values = [_READERS[feature.kind](self, feature) for feature in features]
        return np.column_stack(values) if values else np.empty((self._frame.height, 0))

    def categories(self, feature: FeatureColumn) -> pl.Series:
        """Return the categories of a feature as they are shown; null where one is missing."""
        cells = category_cells(self._frame[feature.column])
        if feature.kind == "weekday":
            return weekdays(cells, feature.date_format)
        return hours(cells, feature.date_format) if feature.kind == "hour" else cells

    def numbers(self, feature: FeatureColumn) -> Array:
        """Return the numbers of a feature, NaN where one is missing."""
        parsed = self._parsed.pop(feature.column, None)
        if parsed is None:
            parsed = parse_column(self._frame[feature.column])
            if feature.number_format is not None and parsed.cells.dtype == pl.String:
                parsed = parsed._replace(numbers=parse_formatted(parsed.cells, feature.number_format))
        if parsed.n_texts > 0 and are_booleans(parsed.cells):  # older models have booleans as numbers
            parsed = parsed._replace(numbers=booleans_as_numbers(parsed.cells))
        return _checked_numbers(parsed, feature, self._first)

    def codes(self, feature: FeatureColumn) -> Array:
        """Return the codes of the categories of a feature."""
        self._parsed.pop(feature.column, None)
        cells = self.categories(feature)
        distinct = cells.unique().drop_nulls()
        codes = pl.Series(category_codes(distinct.to_list()), dtype=pl.Float64)
        numbers = cells.replace_strict(distinct, codes, default=None, return_dtype=pl.Float64)
        return numbers.fill_null(MISSING_CODE).to_numpy()

    def _contents(self, names: list[str], rules: ColumnRules) -> dict[str, ColumnContent]:
        """Return what columns contain; numbers are kept until `points` uses them."""
        contents = {
            name: ColumnContent("category", parse_column(self._frame[name]))
            if name in rules.categorical
            else content_of(self._frame[name], rules.formats)
            for name in names
        }
        if rules.formats == NO_RULES:
            contents = with_common_decimal(contents, rules.decimal_hint)
        self._parsed = {name: content.parsed for name, content in contents.items() if content.kind == "number"}
        return contents

    def _left_out_by_name(self, rules: ColumnRules) -> dict[str, str]:
        left_out = {name: "not among the chosen features" for name in self._frame.columns if rules.features}
        left_out = {name: reason for name, reason in left_out.items() if name not in rules.features}
        earlier = set() if rules.features else result_names(self._frame.columns)
        left_out |= dict.fromkeys(rules.ignore, "ignored")
        left_out |= {} if rules.id is None else {rules.id: "the id of a row"}
        left_out |= {} if rules.time is None else {rules.time: "the timestamp column"}
        return left_out | dict.fromkeys(earlier, "result of an earlier run")


def check_names(names: Collection[str], columns: Collection[str]) -> None:
    """Raise an InvalidInputError if one of the names is not a column."""
    known = set(columns)
    for name in names:
        if name not in known:
            raise InvalidInputError(f"There is no column {name!r}; the columns are {_listed(list(columns))}.")


def result_names(columns: Collection[str]) -> set[str]:
    """Return the columns that are results of an earlier run: those named like results, if there is a score column."""
    return {name for name in (*RESULTS, BORROWED) if name in columns} if SCORE in columns else set()


def with_numeric_features(frame: pl.DataFrame, features: Iterable[FeatureColumn]) -> pl.DataFrame:
    """Convert numbers that are text to integers, or else to floats, for file formats with typed columns."""
    numeric = {feature.column: feature for feature in features if feature.kind == "number"}
    texts = [feature for name, feature in numeric.items() if frame[name].dtype == pl.String]
    return frame.with_columns(_as_typed_numbers(frame[feature.column], feature.number_format) for feature in texts)


def time_values(frame: pl.DataFrame, name: str | None) -> Array | None:
    """Return the timestamp column as numbers or dates; None if a value is neither or is missing."""
    if name is None:
        return None
    column = frame[name]
    if column.dtype == pl.String:
        parsed = parse_column(column)
        is_text = parsed.numbers.null_count() > 0
        column = as_datetimes(parsed.cells, recognise_dates(parsed.cells)) if is_text else parsed.numbers
    is_usable = (column.dtype.is_numeric() or column.dtype in (pl.Date, pl.Datetime)) and column.null_count() == 0
    return column.to_numpy() if is_usable else None


# -- which columns are features ---------------------------------------------------------------------------------------


def _features_of(name: str, content: ColumnContent, rules: ColumnRules) -> tuple[list[FeatureColumn], str]:
    """Return the features made from a column, or the reason why there are none."""
    if content.kind == "date":
        if rules.calendar:
            return _calendar_features(name, content), ""
        if name in rules.features:
            raise InvalidInputError(f"The column {name!r} contains dates: --calendar uses their weekday and hour.")
        return [], "a date or time; --calendar uses its weekday and hour"
    if content.kind == "other" or (content.objection and name not in (*rules.features, *rules.categorical)):
        return [], content.objection
    return [FeatureColumn(name, content.kind, name, content.number_format)], ""


def _calendar_features(name: str, content: ColumnContent) -> list[FeatureColumn]:
    date_format, dtype, parts = content.date_format, content.parsed.cells.dtype, list[FeatureKind]()
    parts += ["weekday"] if (dtype != pl.Time if date_format is None else date_format.has_date) else []
    parts += ["hour"] if (dtype != pl.Date if date_format is None else date_format.has_time) else []
    return [FeatureColumn(f"{name} ({part})", part, name, date_format=date_format) for part in parts]


def _in_words(left_out: dict[str, str]) -> str:
    """Return why columns are left out, for an error message; if there are many, only the first ones are named."""
    reasons = [f"{name or NO_NAME}: {reason}" for name, reason in islice(left_out.items(), _MAX_REASONS)]
    n_others = len(left_out) - len(reasons)
    return "; ".join([*reasons, f"and {n_others:,} other columns"] if n_others > 0 else reasons)


def _with_unique_names(features: list[FeatureColumn], columns: list[str]) -> list[FeatureColumn]:
    """Return features whose names differ from those of other columns."""
    taken = set(columns)
    unique = []
    for feature in features:
        name = feature.name
        while name != feature.column and name in taken:
            name += "_"
        unique.append(feature._replace(name=name))
    return unique


def _notes(columns: list[FeatureColumn], contents: Mapping[str, ColumnContent]) -> list[str]:
    """Return what was decided about the formats of columns; columns with the same format share a note."""
    texts: dict[str, list[str]] = {}
    for feature in columns:
        content = contents.get(feature.column)
        found = None if content is None else content.found
        text = "" if found is None else found.describe()
        if feature.kind == "weekday" and feature.date_format is not None and feature.date_format.is_doubtful:
            text = "dates are read with the month before the day"
        if text:
            texts.setdefault(text, []).append(feature.column)
    return [f"{_listed(names, str)}: {text}" for text, names in texts.items()]


# -- values -----------------------------------------------------------------------------------------------------------


def _checked_numbers(parsed: ParsedColumn, feature: FeatureColumn, first: int) -> Array:
    values = parsed.numbers.to_numpy().astype(np.float64)  # null becomes NaN
    is_wrong = np.abs(values) > MAX_VALUE
    if parsed.n_texts > 0:
        is_wrong |= (parsed.numbers.is_null() & parsed.cells.is_not_null()).to_numpy()
    if is_wrong.any():
        i = int(np.flatnonzero(is_wrong)[0])
        raise _cell_error(f"Row {first + i + 1}, column {feature.column!r}", parsed.cells[i], values[i], feature)
    return values


def _cell_error(where: str, cell: object, value: float, feature: FeatureColumn) -> InvalidInputError:
    if np.isnan(value):
        is_comma = feature.number_format is not None and feature.number_format.decimal == ","
        error = NotANumberError(f"{where}: {shown(cell)} is not a number{' with a decimal comma' * is_comma}.")
        error.column = feature.column
        return error
    if np.isfinite(value):
        return InvalidInputError(f"{where}: {value} exceeds {MAX_VALUE:g} in absolute value.")
    return InvalidInputError(f"{where}: {cell!s:.60} is not finite.")


def _as_typed_numbers(column: pl.Series, number_format: NumberFormat | None) -> pl.Series:
    cells = without_missing_texts(column)
    return as_integers_or_floats(cells) if number_format is None else parse_formatted(cells, number_format)


def _listed(names: list[str], show: Callable[[str], str] = repr) -> str:
    text = ", ".join(map(show, names[:20]))
    return text if len(names) <= 20 else f"{text} and {len(names) - 20} more"


_READERS: dict[FeatureKind, Callable[[TableColumns, FeatureColumn], Any]] = {
    "number": TableColumns.numbers,
    "category": TableColumns.codes,
    "weekday": TableColumns.codes,
    "hour": TableColumns.codes,
}
