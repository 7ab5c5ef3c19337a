"""Names of any kind as labels: one line, cut to a width, and never read as a formula."""

import warnings
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_NO_NAME = "(no name)"
_ELLIPSIS = "…"
_LONGEST = 200  # characters; more are never looked at
_SPARE = 1.03  # letters on a screen are set in whole pixels, and so a little wider


def label_of(name: Any, width: float, size: float) -> str:
    r"""Write a name for matplotlib, in at most so many points of width; what is cut off leaves an ellipsis.

    Examples
    --------
    >>> label_of("price in $", width=100, size=10)
    'price in \\$'
    >>> label_of("a name that is too long", width=60, size=10)
    'a name t…'
    """
    return _cut(_one_line(name), width, size).replace("$", r"\$")  # a pair of dollars would enclose a formula


def text_size(text: str, size: float) -> tuple[float, float]:
    """Give width and height of a label in points; all are as high as those with letters that reach up and down."""
    font, words = FontProperties(size=size), text.replace(r"\$", "$")
    with any_letters():
        width, height, _ = text_to_path.get_text_width_height_descent(words, font, ismath=False)
    _, least, _ = text_to_path.get_text_width_height_descent("lp", font, ismath=False)
    return _SPARE * width, _SPARE * max(height, least)


@contextmanager
def any_letters() -> Iterator[None]:
    """Draw letters that the font lacks as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def _one_line(name: Any) -> str:
    """Leave out what has no shape; a name without any is said to be none."""
    words = " ".join(str(name).split())
    return "".join(letter for letter in words if letter.isprintable()) or _NO_NAME


def _cut(text: str, width: float, size: float) -> str:
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + _ELLIPSIS
    if text_size(text, size)[0] <= width:
        return text
    n_fitting = bisect_right(range(1, len(text)), width, key=lambda n: text_size(text[:n] + _ELLIPSIS, size)[0])
    return text[:n_fitting].rstrip() + _ELLIPSIS
