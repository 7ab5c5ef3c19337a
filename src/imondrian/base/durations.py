"""Durations as text, such as 30s, 10m, 1.5h or 2d."""

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*([smhd])\s*", re.ASCII)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration; None if the text is not one.

    Examples
    --------
    >>> seconds_of("10m"), seconds_of("1.5 h"), seconds_of("soon")
    (600.0, 5400.0, None)
    """
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _SECONDS[match[2]]


def in_words(seconds: float) -> str:
    """Return a duration in the largest unit of which there is at least one, such as "13.6 min" or "1.5 h"."""
    unit = max((unit for unit, size in _SECONDS.items() if seconds >= size), key=_SECONDS.__getitem__, default="s")
    return f"{seconds / _SECONDS[unit]:.3g} {'min' if unit == 'm' else unit}"
