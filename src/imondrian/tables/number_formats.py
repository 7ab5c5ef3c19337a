"""How the numbers of a column are written: decimal and thousands separators, currency, percent signs, parentheses."""

import re
from typing import NamedTuple

import polars as pl

from imondrian.base.errors import InvalidInputError

DECIMALS = (".", ",")
THOUSANDS = (",", ".", " ", "'")
_CURRENCIES = (
    "[$€£¥₹₩₽₺₪₫₱฿]|(?:US|CA|AU|NZ|HK|SG|R)\\$|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|ILS|INR|JPY|KRW|MXN|NOK|NZD|"
    "PLN|RUB|SEK|SGD|TRY|USD|ZAR|Fr\\.|kr\\.?|zł|Kč"
)
_CURLY, _MINUS = "\u2019", "\u2212"  # an apostrophe and a minus sign, as some programs write them
_SPACES = "[ \\u00a0\\u2007\\u2009\\u202f]"
_PARTS = (  # of a cell
    f"^(?P<open>\\()?{_SPACES}*(?P<sign>[-+\\u2212])?{_SPACES}*(?P<before>{_CURRENCIES})?{_SPACES}*(?P<inner>[-+\\u2212])?"
    f"(?P<body>[0-9.,](?:[0-9.,'\\u2019]|{_SPACES}[0-9])*(?:[eE][-+]?[0-9]+)?)"
    f"{_SPACES}*(?P<after>%|{_CURRENCIES})?{_SPACES}*(?P<close>\\))?$"
)
_NAMES = {",": "comma", ".": "point", " ": "space", "'": "apostrophe"}
_MIN_SHARE = 0.9  # share of the cells that must be numbers of one format


class NumberFormat(NamedTuple):
    """The separators of the numbers in a column."""

    decimal: str = "."
    thousands: str = ""  # empty: none

    def pattern(self, *, is_strict: bool = False) -> str:
        """Return a regular expression for unsigned numbers; if strict, four or more digits must be grouped."""
        decimal, thousands = re.escape(self.decimal), re.escape(self.thousands)
        ungrouped = "[0-9]{1,3}" if is_strict and self.thousands else "[0-9]+"
        grouped = f"[1-9][0-9]{{0,2}}(?:{thousands}[0-9]{{3}})+|" if self.thousands else ""
        return f"^(?:(?:{grouped}{ungrouped})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][-+]?[0-9]+)?$"


PLAIN = NumberFormat()
_FORMATS = (  # in order of preference, for columns that several formats fit equally well
    PLAIN,
    *(NumberFormat(".", thousands) for thousands in (",", " ", "'")),
    NumberFormat(","),
    *(NumberFormat(",", thousands) for thousands in (".", " ", "'")),
)


class FormatRules(NamedTuple):
    """Separators that the user has chosen; None: recognised."""

    decimal: str | None = None
    thousands: str | None = None

    def allow(self, number_format: NumberFormat) -> bool:
        """Return True if a format agrees with the rules."""
        is_thousands = number_format.thousands in ("", self.thousands) or self.thousands is None
        is_possible = number_format.decimal != self.thousands
        return is_thousands and is_possible and number_format.decimal == (self.decimal or number_format.decimal)

    def checked(self) -> "FormatRules":
        """Return the rules; raise an InvalidInputError if they are impossible."""
        if self.decimal not in (None, *DECIMALS):
            raise InvalidInputError(f"--decimal must be '.' or ',', but is {self.decimal!r}.")
        thousands = {"space": " ", "": None}.get(self.thousands or "", self.thousands)
        if thousands not in (None, *THOUSANDS):
            raise InvalidInputError(
                f"--thousands must be one of ',', '.', a space and an apostrophe, but is {self.thousands!r}."
            )
        if thousands is not None and thousands == self.decimal:
            raise InvalidInputError(f"--decimal and --thousands must differ, but both are {thousands!r}.")
        return FormatRules(self.decimal, thousands)


NO_RULES = FormatRules()


class FoundFormat(NamedTuple):
    """The format of a column, and how it was found."""

    number_format: NumberFormat
    marks: tuple[str, ...] = ()  # currency and percent signs
    has_parentheses: bool = False
    example: str | None = None  # a cell that could also be read in another way
    other: NumberFormat | None = None  # the format of that other reading

    def describe(self) -> str:
        """Return in words what was decided; empty if the numbers are plain."""
        decimal, thousands = self.number_format
        parts = [f"decimal {_NAMES[decimal]}"] if decimal != "." else []
        parts += [f"thousands {_NAMES[thousands]}"] if thousands else []
        parts += [f"{' and '.join(self.marks)} sign{'s' * (len(self.marks) > 1)} removed"] if self.marks else []
        parts += ["numbers in parentheses are negative"] if self.has_parentheses else []
        if self.example is not None and self.other is not None:
            read = _shown_number(self.example, self.number_format)
            other = _shown_number(self.example, self.other)
            parts.append(f"{self.example!r} is read as {read}; --decimal {_option(self.other)} reads it as {other}")
        return ", ".join(parts)


def recognise_format(
    cells: pl.Series,
    rules: FormatRules = NO_RULES,
    hint: str | None = None,
) -> FoundFormat | None:
    """Return how the numbers of a column are written; None if fewer than 90 % of its cells are numbers.

    Parameters
    ----------
    cells : polars.Series
        The distinct cells of the column as text; null where a value is missing.
    rules : FormatRules
        Separators that the user has chosen.
    hint : {".", ","}, optional
        The decimal separator of other columns, for cells such as 1,234 that could be read in two ways.
    """
    present = cells.drop_nulls()
    if present.is_empty():
        return None
    parts = _split(present)
    bodies = parts["body"]
    allowed = [f for f in _FORMATS if rules.allow(f) and (not f.thousands or _occurs(f.thousands, bodies))]
    fits = {number_format: _fit(bodies, number_format) for number_format in allowed}
    best = max(fits.values(), default=(0, 0))
    if best[0] < _MIN_SHARE * present.len():
        return None
    fitting = [number_format for number_format in allowed if fits[number_format] == best]
    marks = tuple(parts["mark"].drop_nulls().unique().sort().to_list())
    chosen = _prefer(fitting, hint, is_money=bool(marks) and "%" not in marks)
    other = next((f for f in fitting if f.decimal != chosen.decimal and _differ(bodies, chosen, f)), None)
    is_doubtful = other is not None and rules == NO_RULES and hint is None
    example = next((b for b in bodies.drop_nulls() if _differ(pl.Series([b]), chosen, other)), None) if other else None
    found = FoundFormat(chosen, marks, bool((parts["sign"] == "(").any()))
    return found._replace(example=example, other=other) if is_doubtful else found


def parse_formatted(cells: pl.Series, number_format: NumberFormat) -> pl.Series:
    """Return the cells of a column as numbers, null where they are not numbers in this format."""
    parts = _split(cells)
    body = parts["body"]
    body = body.set(~body.str.contains(number_format.pattern()), None)
    numbers = _as_floats(body, number_format)
    is_negative = parts["sign"].is_in(["-", "("]).fill_null(value=False)
    return numbers.zip_with(~is_negative, -numbers).alias(cells.name)


def may_be_thousands(cells: pl.Series) -> bool:
    """Return True if plain numbers could be integers with points between thousands: every point precedes 3 digits."""
    with_point = cells.filter(cells.str.contains(".", literal=True).fill_null(value=False))
    pattern = NumberFormat(",", ".").pattern(is_strict=True)
    return not with_point.is_empty() and bool(with_point.str.strip_chars("+- ").str.contains(pattern).all())


def _split(cells: pl.Series) -> pl.DataFrame:
    """Return the sign, the mark and the digits of each cell; mark and digits are null where a cell is not a number."""
    groups = cells.str.extract_groups(_PARTS).struct.unnest()
    has_two_signs = (
        pl.col("open").is_not_null().cast(pl.Int8)
        + pl.col("sign").is_not_null().cast(pl.Int8)
        + pl.col("inner").is_not_null().cast(pl.Int8)
    ) > 1
    is_unbalanced = pl.col("open").is_not_null() != pl.col("close").is_not_null()
    has_two_marks = pl.col("before").is_not_null() & pl.col("after").is_not_null()
    is_wrong = has_two_signs | is_unbalanced | has_two_marks
    body = pl.col("body").str.replace_all(_SPACES, " ").str.replace_all(_CURLY, "'", literal=True)
    return groups.select(
        pl.when(is_wrong).then(None).otherwise(body).alias("body"),
        pl.coalesce("open", "sign", "inner").str.replace(_MINUS, "-", literal=True).alias("sign"),
        pl.when(is_wrong).then(None).otherwise(pl.coalesce("before", "after")).alias("mark"),
    )


def _occurs(character: str, bodies: pl.Series) -> bool:
    return bool(bodies.str.contains(character, literal=True).any())


def _fit(bodies: pl.Series, number_format: NumberFormat) -> tuple[int, int]:
    """Return how many bodies have the format, and how many have it strictly."""
    n_loose, n_strict = (
        bodies.str.contains(number_format.pattern(is_strict=is_strict)).sum() for is_strict in (False, True)
    )
    return int(n_loose), int(n_strict)


def _prefer(fitting: list[NumberFormat], hint: str | None, *, is_money: bool) -> NumberFormat:
    """Return the format to use among those that fit equally well."""
    hinted = [number_format for number_format in fitting if number_format.decimal == hint]
    if hinted:
        return hinted[0]
    grouped = [number_format for number_format in fitting if number_format.thousands]
    return grouped[0] if is_money and grouped else fitting[0]


def _as_floats(bodies: pl.Series, number_format: NumberFormat) -> pl.Series:
    if number_format.thousands:
        bodies = bodies.str.replace_all(number_format.thousands, "", literal=True)
    return bodies.str.replace(number_format.decimal, ".", literal=True).cast(pl.Float64, strict=False)


def _differ(bodies: pl.Series, one: NumberFormat, two: NumberFormat) -> bool:
    """Return True if a number differs between two formats."""
    return not _as_floats(bodies, one).equals(_as_floats(bodies, two))


def _shown_number(body: str, number_format: NumberFormat) -> str:
    return f"{_as_floats(pl.Series([body]), number_format)[0]:.10g}"


def _option(number_format: NumberFormat) -> str:
    return f"'{number_format.decimal}'"
