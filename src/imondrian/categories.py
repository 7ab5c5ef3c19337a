"""Categories as numbers: a category becomes an integer below 2**53 that depends only on its text."""

import hashlib
from collections.abc import Hashable, Iterable
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from imondrian.errors import InvalidInputError

_BITS_DROPPED = 11  # of 64: every integer below 2**53 is a float64
_MISSING_KEY, _TEXT_KEY = b"missing", b"text"


def category_text(value: Any) -> str:
    """Return the text that identifies a category. Equal numbers are the same category: 3, 3.0 and "3" are "3".

    Raises
    ------
    InvalidInputError
        If the value is neither text, a boolean nor a finite number.

    Examples
    --------
    >>> [category_text(value) for value in ("FR", True, 3, 3.0, 2.5)]
    ['FR', 'true', '3', '3', '2.5']
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (Real, Decimal)) and abs(float(value)) < float("inf"):
        integer = int(value)  # type: ignore[arg-type]  # every finite number can be truncated
        return str(integer) if value == integer else repr(float(value))
    raise InvalidInputError(f"A category must be text, a boolean or a finite number, but one is {value!r:.100}.")


def category_code(value: Any) -> float:
    """Return the number that stands for a category: always the same for the same text, on every machine.

    None and NaN are a category of their own, `MISSING_CODE`.

    Examples
    --------
    >>> category_code("FR")
    6257867736028357.0
    """
    return MISSING_CODE if is_missing(value) else _hashed(category_text(value), _TEXT_KEY)


def category_codes(values: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the number of each category in a column; each distinct value is hashed once."""
    known: dict[tuple[type, Any], float] = {}
    codes = []
    for value in values:
        key = (type(value), value if isinstance(value, Hashable) else repr(value))  # True == 1, but not as categories
        if key not in known:
            known[key] = category_code(value)
        codes.append(known[key])
    return np.array(codes, np.float64)


def is_missing(value: Any) -> bool:
    """Return True for None, NaN, and the missing values of pandas (NaT, NA)."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, (Real, Decimal, np.datetime64)) and bool(value != value)  # noqa: PLR0124 (NaN)


def _hashed(text: str, key: bytes) -> float:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8, key=key).digest()
    return float(int.from_bytes(digest, "little") >> _BITS_DROPPED)


MISSING_CODE = _hashed("", _MISSING_KEY)
