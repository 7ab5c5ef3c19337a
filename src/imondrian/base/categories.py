"""Categories as numbers: a category becomes an integer below 2**53 that depends only on its text."""

import hashlib
import re
from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from numbers import Real
from typing import Any

import numpy as np

from imondrian.base.errors import InvalidInputError

_BITS_DROPPED = 11  # of 64: every integer below 2**53 is a float64
_MISSING_KEY, _TEXT_KEY = b"missing", b"text"
_ZERO_FRACTION = re.compile(r"(?:-?[1-9][0-9]*|(-?0))\.0+")  # an integer written as a float: 3.0, -12.00
_MAX_DIGITS = 4300  # of an integer; Python does not write longer ones
_MAX_SHOWN_LENGTH = 100  # characters of a value in an error message


def category_text(value: Any) -> str:
    """Return a category as text: 3 and 3.0 are "3", True is "true", and text is itself.

    A float of another precision is converted to float64 first, so float32 0.1 is "0.10000000149011612". A member of an
    enumeration is its value.

    Raises
    ------
    InvalidInputError
        If the value is neither text, a boolean nor a finite number of at most 4,300 digits.

    Examples
    --------
    >>> [category_text(value) for value in ("FR", True, 3, 3.0, 2.5)]
    ['FR', 'true', '3', '3', '2.5']
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may have another __str__
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if not isinstance(value, np.timedelta64) and isinstance(value, (Real, Decimal)):
        with suppress(OverflowError, ValueError):  # infinite, or too many digits
            return _number_text(value)
    raise InvalidInputError(f"A category must be text, a boolean or a finite number, but one is {_shown(value)}.")


def category_code(value: Any) -> float:
    """Return the number that stands for a category: always the same for the same text, on every machine.

    Equal numbers are the same category: 3, 3.0, "3" and "3.0". (A column of integers with gaps is exported as floats.)
    Text with other digits after the point is taken as it is ("1.1" and "1.10" may be versions). None and NaN are a
    category of their own, `MISSING_CODE`.

    Examples
    --------
    >>> category_code("FR")
    6257867736028357.0
    >>> category_code("3.0") == category_code("3") == category_code(3.0)
    True
    """
    return MISSING_CODE if is_missing(value) else _hashed(_without_zero_fraction(category_text(value)), _TEXT_KEY)


def category_codes(values: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the code of each category in a column; each distinct value is hashed once."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        distinct, positions = np.unique(values, return_inverse=True)
        return np.array([category_code(value) for value in distinct], np.float64)[positions.reshape(values.shape)]
    known: dict[tuple[type, Any], float] = {}
    return np.array([_known_code(value, known) for value in values], np.float64)


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, masked values, and the missing values of pandas (NaT, NA)."""
    if value is None or value is np.ma.masked or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()  # comparing a signalling NaN would raise
    return isinstance(value, (Real, np.datetime64, np.timedelta64)) and bool(value != value)  # noqa: PLR0124 (NaN)


def distinct_key(value: Any) -> tuple[type, Any]:
    """Return the dictionary key of a category: True and 1 have different keys.

    Long integers become text: Python's hash of integers is not random, so that somebody could choose thousands of long
    integers with the same hash, and a dictionary of them would take quadratic time.
    """
    is_long = type(value) is int and not -(2**63) <= value < 2**63
    return (type(value), f"{value:x}" if is_long else value)


def _known_code(value: Any, known: dict[tuple[type, Any], float]) -> float:
    """Return the code of a value; `known` has the codes of earlier values and gets new ones."""
    key = distinct_key(value)
    try:
        code = known.get(key)
    except TypeError:  # not hashable, so not a category
        return category_code(value)
    if code is None:
        code = known[key] = category_code(value)
    return code


def _without_zero_fraction(text: str) -> str:
    """Return the text of an integer without a fraction of zeros; other text as it is."""
    match = _ZERO_FRACTION.fullmatch(text)
    if match is None:
        return text
    return text.partition(".")[0] if match[1] is None else "0"  # also for -0.0


def _number_text(number: Any) -> str:
    """Return the text of a number; raise OverflowError or ValueError if it has none."""
    if isinstance(number, Decimal) and number.adjusted() > _MAX_DIGITS:
        raise OverflowError  # before the integer is computed
    if isinstance(number, np.floating):
        number = float(number)  # as `tolist` and `to_list` do: float32, too, has the text of its float64 value
    integer = int(number)
    return str(integer) if integer == number else repr(float(number))


def _hashed(text: str, key: bytes) -> float:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8, key=key).digest()
    return float(int.from_bytes(digest, "little") >> _BITS_DROPPED)


def _shown(value: Any) -> str:
    """Return a value for an error message."""
    try:
        return repr(value)[:_MAX_SHOWN_LENGTH]
    except Exception:  # noqa: BLE001 (a foreign __repr__ may raise any error; that of a very long integer raises ValueError)
        return f"an object of type {type(value).__name__}"


MISSING_CODE = _hashed("", _MISSING_KEY)
