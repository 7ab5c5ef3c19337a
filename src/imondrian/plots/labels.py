"""Turn any name into a label: one line, cut to a width, and never parsed as a formula."""

import warnings
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from imondrian.base.column_names import NO_NAME

_ELLIPSIS = "…"
_MAX_CHARACTERS = 200  # longer names are cut before they are measured
_MARGIN = 1.03  # on a screen, glyphs are rounded to whole pixels, so text is slightly wider


def fitted_label(name: Any, width: float, size: float) -> str:
    r"""Return a name as matplotlib text of at most `width` points, ending in an ellipsis if it was cut.

    Examples
    --------
    >>> fitted_label("price in $", width=100, size=10)
    'price in \\$'
    >>> fitted_label("a name that is too long", width=60, size=10)
    'a name t…'
    """
    return _cut(_one_line(name), width, size).replace("$", r"\$")  # matplotlib reads text between dollars as a formula


def text_size(text: str, size: float) -> tuple[float, float]:
    """Return the width and height of a label in points.

    The height is at least that of a text with ascenders and descenders, so that labels in a row have equal heights.
    """
    font, unescaped = FontProperties(size=size), text.replace(r"\$", "$")
    with ignore_missing_glyphs():
        width, height, _ = text_to_path.get_text_width_height_descent(unescaped, font, ismath=False)
    _, least, _ = text_to_path.get_text_width_height_descent("lp", font, ismath=False)
    return _MARGIN * width, _MARGIN * max(height, least)


@contextmanager
def ignore_missing_glyphs() -> Iterator[None]:
    """Suppress the warning for each character that the font lacks; such characters are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def _one_line(name: Any) -> str:
    """Join the words of a name with single spaces, without unprintable characters."""
    words = " ".join(str(name).split())
    return "".join(character for character in words if character.isprintable()) or NO_NAME


def _cut(text: str, width: float, size: float) -> str:
    if len(text) > _MAX_CHARACTERS:
        text = text[:_MAX_CHARACTERS] + _ELLIPSIS
    if text_size(text, size)[0] <= width:
        return text
    n_fitting = bisect_right(range(1, len(text)), width, key=lambda n: text_size(text[:n] + _ELLIPSIS, size)[0])
    return text[:n_fitting].rstrip() + _ELLIPSIS
