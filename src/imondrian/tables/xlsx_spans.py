"""The span of a sheet in XML, as in .xlsx files."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from imondrian.tables.spans import MAX_CELLS, CellSpan, UncheckedSheetError, column_of, count_of, extended

_TAG = re.compile(  # the start or end of a cell or a row
    rb"""<(?!/c)(?P<end>/?)(?:[^\s<>/"'=]*:)?(?P<name>c|row)(?=[\s/>])"""
    rb"""(?P<attributes>(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+>)?"""
    rb"""(?P<empty>(?<=/>)|\s*+(?=</))?"""
)
_REFERENCE = re.compile(rb"""(?<![\w:.-])r\s*=\s*["']([A-Za-z]*)(\d+)["']""")
_ANY_REFERENCE = re.compile(rb"""r\s*+=\s*+["']([A-Za-z]*+)(\d++)["']""")  # starts with a literal: searched fast
_PREFIXED = re.compile(rb":(?=c[\s/>])")  # one character: searched fast
_MAX_LETTERS, _MAX_DIGITS = 3, 7  # of XFD1048576
_MIN_REFERENCE = 6  # characters of r="A1"
_MAX_TAG_BYTES = 2**26  # read until a tag ends


def xml_span(chunks: Callable[[], Iterator[bytes]]) -> CellSpan | None:
    """Return the span of the cells that have content; None if it is at most `MAX_CELLS` cells, or if there are none.

    Parameters
    ----------
    chunks : callable
        Returns the text of the sheet in chunks, each time from its start.

    Raises
    ------
    UncheckedSheetError
        If the text is not XML.
    """
    if _are_references_near(chunks()) or _most_cells(chunks()) <= MAX_CELLS:
        return None
    return _exact_span(chunks())


# -- fast upper bounds --------------------------------------------------------------------------------------------


class _Bounds(NamedTuple):
    """A range of columns and rows.

    It contains the columns with fewer than `n_letters` letters, and those with `n_letters` letters of which the first
    is at most `letter`; the same holds for the digits of rows.
    """

    n_letters: int = 1
    letter: int = 65
    n_digits: int = 1
    digit: int = 1

    def including(self, letters: bytes, digits: bytes) -> "_Bounds":
        """Return the smallest bounds that also contain a cell."""
        row_text = str(int(digits))
        column = max((self.n_letters, self.letter), (len(letters), letters.upper()[0]))
        row = max((self.n_digits, self.digit), (len(row_text), int(row_text[0])))
        return _Bounds(*column, *row)

    @property
    def n_cells(self) -> int:
        """Number of cells in these rows and columns."""
        last = bytes([self.letter]) + b"Z" * (self.n_letters - 1)
        return (column_of(last) + 1) * ((self.digit + 1) * 10 ** (self.n_digits - 1) - 1)


def _are_references_near(chunks: Iterator[bytes]) -> bool:
    """Return True if every cell has a reference, and the references show that the span is small.

    Only cells outside of the bounds so far are looked at; the bounds grow in few steps.
    """
    bounds = _Bounds()
    for text, end in pieces_of_xml(chunks):
        if _PREFIXED.search(text, 0, end):
            return False
        position = 0
        while found := _cells_outside(bounds).search(text, position, end):
            tag = _TAG.match(text, found.start())
            references = _REFERENCE.findall(tag["attributes"] or b"") if tag else []
            if len(references) != 1 or not _is_ordinary(*references[0]):
                return False
            bounds = bounds.including(*references[0])
            if bounds.n_cells > MAX_CELLS:
                return False
            position = found.end()
    return True


def _is_ordinary(letters: bytes, digits: bytes) -> bool:
    return 1 <= len(letters) <= _MAX_LETTERS and len(digits) <= _MAX_DIGITS and int(digits) > 0


@lru_cache(maxsize=256)
def _cells_outside(bounds: _Bounds) -> re.Pattern[bytes]:
    """Return a pattern of the starts of cells whose first attribute is not a reference within the bounds."""
    columns = rb"(?:[A-%c][A-Z]{%d}|[A-Z]{0,%d})" % (bounds.letter, bounds.n_letters - 1, bounds.n_letters - 1)
    rows = rb"(?:[1-%d]\d{%d}|\d{0,%d})" % (bounds.digit, bounds.n_digits - 1, bounds.n_digits - 1)
    return re.compile(rb'<c(?! r="%s%s")(?=[\s/>])' % (columns, rows))


def _most_cells(chunks: Iterator[bytes]) -> int:
    """Return an upper bound on the cells in the span; a cell without a reference follows the one before it."""
    last_row = last_column = n_rows = width = n_cells = 0
    for text, end in pieces_of_xml(chunks):
        for letters, digits in _ANY_REFERENCE.findall(text, 0, end):
            last_row, last_column = max(last_row, count_of(digits)), max(last_column, column_of(letters) + 1)
        n_rows += text.count(b"row", 0, end)
        for i, row in enumerate(text[:end].split(b"</row>")):
            n_cells = row.count(b"<c") + row.count(b":c") + (n_cells if i == 0 else 0)  # the first row may have begun
            width = max(width, n_cells)
    return (last_row + n_rows) * (last_column + width)


# -- the exact span -----------------------------------------------------------------------------------------------


def _exact_span(chunks: Iterator[bytes]) -> CellSpan | None:
    """Return the span of the cells that have content; one without a reference follows the cell before it."""
    span = None
    row = column = 0  # of the next cell without a reference
    for tag in _tags(chunks):
        end, name, attributes, empty = tag.groups()
        if name == b"row":
            row, column = _next_row(tag, row, column)
        elif not end:
            position = _position(attributes) if len(attributes) > _MIN_REFERENCE else None
            cell_row, column = position or (row, column)
            if empty is None:
                span = extended(span, cell_row, column)
            column += 1
    return span


def _next_row(tag: re.Match[bytes], row: int, column: int) -> tuple[int, int]:
    """Return the row and column of the next cell after the start or the end of a row."""
    if tag["end"]:
        return row + 1, 0
    rows = [count_of(digits) - 1 for _, digits in _REFERENCE.findall(tag["attributes"])]
    row = max(rows, default=row)
    return (row + 1, 0) if tag["attributes"].endswith(b"/>") else (row, column)


def _position(attributes: bytes) -> tuple[int, int] | None:
    """Return the row and column that the reference of a cell names: the last one, if there are several."""
    references = _REFERENCE.findall(attributes)
    return max(((count_of(digits) - 1, column_of(letters)) for letters, digits in references), default=None)


def _tags(chunks: Iterator[bytes]) -> Iterator[re.Match[bytes]]:
    """Yield the starts and ends of cells and rows."""
    for text, end in pieces_of_xml(chunks):
        for tag in _TAG.finditer(text):
            if tag.start() >= end:
                break
            if tag["attributes"] is None:
                raise UncheckedSheetError("a tag is not closed")
            yield tag


def pieces_of_xml(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield the text of a sheet in pieces, each with the position up to which the caller is to process it.

    The rest of a piece, from the last but one `<`, is the start of the next piece: so each tag before that position is
    complete, and what follows it is known.
    """
    text = b""
    for chunk in chunks:
        text += chunk
        end = max(text.rfind(b"<", 0, max(text.rfind(b"<"), 0)), 0)
        yield text, end
        text = text[end:]
        if len(text) > _MAX_TAG_BYTES:
            raise UncheckedSheetError("a cell is longer than 64 MiB")
    yield text, len(text)
