"""Columns of dates and times: recognise them by their content, and compute the weekday and hour of each value."""

from typing import NamedTuple

import polars as pl

from imondrian.base.errors import InvalidInputError

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DATES = (  # if several fit equally well, the first of them is used
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%d.%m.%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
)
_TIMES = ("%H:%M:%S%.f", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_FORMATS = (*_DATES, *(f"{date} {time}" for date in _DATES for time in _TIMES), *_TIMES)
_LIKE_DATE = (
    r"(?i)^(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})"
    r"|\d{1,2}[- ][a-z]{3,9}[- ]\d{4}|[a-z]{3,9} \d{1,2}, \d{4})?"
)
_LIKE_TIME = r"(?:(?:^|[ T])\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[ap]m)?)?"
_ZONE = r"(?: ?Z| ?UTC|[+-]\d{2}:?\d{2})$"
_SHORT_YEAR = r"^\d{1,2}[-/.]\d{1,2}[-/.]\d{2}(?: |$)"
_EPOCH = "1970-01-01 "  # added before times without a date, so that they can be parsed
_N_SAMPLED = 50  # number of values from which the possible formats are found
_MIN_SHARE = 0.9  # of the values of a column that must be dates


class DateFormat(NamedTuple):
    """How dates or times are written as text."""

    text: str  # a format of strptime
    is_doubtful: bool = False  # True: day and month could also be swapped

    @property
    def has_date(self) -> bool:
        """Whether there is a date."""
        return "%d" in self.text

    @property
    def has_time(self) -> bool:
        """Whether there is a time of day."""
        return "%M" in self.text


def recognise_dates(cells: pl.Series) -> DateFormat | None:
    """Return the format of the dates or times in a column of text.

    Return None if less than 90 % of its values are dates or times of one format.
    """
    present = cells.drop_nulls()
    if present.is_empty() or not _look_like_dates(present[:_N_SAMPLED]):
        return None
    texts = _normalised(present)
    sample = texts[:_N_SAMPLED]
    candidates = [text for text in _FORMATS if _n_parsed(sample, text) >= _MIN_SHARE * sample.len()]
    counts = {text: _n_parsed(texts, text) for text in candidates}
    best = max(counts.values(), default=0)
    if best < _MIN_SHARE * texts.len():
        return None
    fitting = [text for text in candidates if counts[text] == best]
    orders = {text.index("%d") < text.index("%m") for text in fitting if "%m" in text}
    return DateFormat(fitting[0], is_doubtful=len(orders) > 1)


def is_known_format(text: object) -> bool:
    """Return True if a format of a model file is one that `recognise_dates` returns."""
    return text in _FORMATS


def related_formats(text: str) -> list[str]:
    """Return the other formats that write the date in the same way; none if a format has no date."""
    dates = [date for date in _DATES if text == date or text.startswith(f"{date} ")]
    related = [*dates, *(f"{date} {time}" for date in dates for time in _TIMES)]
    return [other for other in related if other != text]


def format_for_model(cells: pl.Series, date_format: DateFormat | None) -> DateFormat | None:
    """Return the format of the dates or times in a table that a model is applied to.

    That is the format of the model, unless the cells are in another one.

    Parameters
    ----------
    cells : polars.Series
        A column of the table, or of its first batch.
    date_format : DateFormat or None
        The format of the model; None if the model was fitted on a column with the type of a date.

    Raises
    ------
    InvalidInputError
        If the cells are in another format, in which day and month could also be swapped.
    """
    present = cells.drop_nulls()
    if present.is_empty() or present.dtype != pl.String:
        return date_format
    if date_format is not None and _n_parsed(_normalised(present), date_format.text) >= _MIN_SHARE * present.len():
        return date_format
    found = recognise_dates(present)
    if found is not None and found.is_doubtful:
        raise InvalidInputError(
            f"The column {cells.name!r} contains dates such as {present[0]!r:.60}: day and month could also be swapped."
            " Write the dates as the model knows them, or with the year first."
        )
    return found or date_format


def weekdays(cells: pl.Series, date_format: DateFormat | None) -> pl.Series:
    """Return the name of the weekday of each date, null where there is no date.

    Raise InvalidInputError if the column has values, but no dates.
    """
    times = _times_of(cells, date_format)
    if times.dtype == pl.Time:
        raise InvalidInputError(f"The column {cells.name!r} must contain dates, but contains times of day.")
    return times.dt.weekday().replace_strict(range(1, 8), _WEEKDAYS, default=None, return_dtype=pl.String)


def hours(cells: pl.Series, date_format: DateFormat | None) -> pl.Series:
    """Return the hour of each time as text such as "14", null where there is no time.

    Raise InvalidInputError if the column has values, but no dates or times.
    """
    return _times_of(cells, date_format).dt.hour().cast(pl.String)


def _times_of(cells: pl.Series, date_format: DateFormat | None) -> pl.Series:
    """Return dates and times, whatever the type of the column; null where a cell is not in the format.

    Raises
    ------
    InvalidInputError
        If the column has values, but no dates or times.
    """
    if cells.dtype == pl.Date:
        return cells.cast(pl.Datetime("us"))
    if cells.dtype in (pl.Datetime, pl.Time):
        return cells
    parsed = as_datetimes(cells, date_format)
    if parsed.null_count() == cells.len() > cells.null_count():
        raise InvalidInputError(
            f"The column {cells.name!r} must contain dates or times, but contains values such as"
            f" {cells.drop_nulls()[0]!r:.60}."
        )
    return parsed


def as_datetimes(cells: pl.Series, date_format: DateFormat | None) -> pl.Series:
    """Parse dates and times that are text, null where a cell is not in this format; return other dates unchanged."""
    if cells.dtype != pl.String or date_format is None:
        is_date = cells.dtype in (pl.Date, pl.Datetime, pl.Time)
        return cells if is_date else pl.Series(cells.name, [None] * cells.len(), pl.Datetime)
    return _parsed(_normalised(cells), date_format.text)


def _look_like_dates(cells: pl.Series) -> bool:
    pattern = f"{_LIKE_DATE}{_LIKE_TIME}(?:{_ZONE})?$"
    return bool((cells.str.contains(pattern) & cells.str.contains(r"\d[-/.:, ]")).sum() >= _MIN_SHARE * cells.len())


def _normalised(cells: pl.Series) -> pl.Series:
    """Return cells without time zones, and with a blank between date and time."""
    return cells.str.replace(_ZONE, "").str.replace(r"(\d)T(\d)", "${1} ${2}")


def _n_parsed(cells: pl.Series, text: str) -> int:
    parsed = _parsed(cells, text)
    is_short = cells.str.contains(_SHORT_YEAR)
    is_wrong = is_short if "%Y" in text else ~is_short if "%y" in text else pl.Series([False])
    return int((parsed.is_not_null() & ~is_wrong).sum())


def _parsed(cells: pl.Series, text: str) -> pl.Series:
    if "%d" not in text:
        cells, text = _EPOCH + cells, f"%Y-%m-%d {text}"
    try:
        return cells.str.strptime(pl.Datetime("us"), text, strict=False)
    except pl.exceptions.PolarsError:  # for example an hour without minutes
        return pl.Series(cells.name, [None] * cells.len(), pl.Datetime("us"))
