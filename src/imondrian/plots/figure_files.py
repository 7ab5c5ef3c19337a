"""Write figures to files: the same figure gives the same bytes."""

from typing import IO, Any, Literal

from matplotlib import rc_context
from matplotlib.figure import Figure

from imondrian.base.errors import InvalidInputError
from imondrian.plots.labels import ignore_missing_glyphs

_DPI = 150
_METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}}


def write_figure(figure: Figure, file: IO[bytes], kind: Literal["png", "svg"]) -> None:
    """Write a figure to an open binary file.

    Parameters
    ----------
    figure : Figure
    file : binary file
        Opened for writing.
    kind : "png" or "svg"
        The image format.

    Examples
    --------
    >>> from io import BytesIO
    >>> from imondrian.plots import plot_timeline
    >>> file = BytesIO()
    >>> write_figure(plot_timeline([0.4, 0.8], threshold=0.5), file, "png")
    >>> file.getvalue()[1:4]
    b'PNG'
    """
    if kind not in _METADATA:
        raise InvalidInputError(f"kind must be one of {list(_METADATA)}, but is {kind!r}.")
    with rc_context({"svg.hashsalt": "imondrian"}), ignore_missing_glyphs():  # without a salt, SVG ids are random
        figure.savefig(file, format=kind, dpi=_DPI, metadata=_METADATA[kind])
