"""How much text the cells of a sheet in XML contain when it is loaded: each cell gets a copy of its shared text."""

import re
from array import array
from collections.abc import Callable, Iterator

from imondrian.tables.spans import MAX_TEXT_BYTES, UncheckedSheetError, count_of
from imondrian.tables.xlsx_spans import pieces_of_xml

_MAX_SHARED_BYTES = 2**26  # of one shared text
_MARKUP = re.compile(rb"<[^<>]*+>")
_SHARED_TYPES = (b'"s"', b"'s'")  # the type of a cell whose value is the number of a shared text
_SHARED_CELL = re.compile(rb"""\st="s"(?:\s\w++="[^"<>]*+")*+><v>(\d++)</v></c>""")
_END = b"</si>"
_RAW = b"<!"  # the start of CDATA, in which tags are text, or of a comment
Chunks = Callable[[], Iterator[bytes]]


def n_text_bytes(sheet: Chunks, shared: Chunks) -> int:
    """Return an upper bound on the bytes of text in all cells of a sheet.

    It is close if the text may exceed `MAX_TEXT_BYTES`.

    Parameters
    ----------
    sheet : callable
        Returns the XML of the sheet in chunks, each time from its start.
    shared : callable
        Returns the XML of the shared texts in the same way.

    Raises
    ------
    UncheckedSheetError
        If a shared text is longer than 64 MiB.
    """
    longest = max(map(len, _shared_texts(shared())), default=0)
    n_bytes = n_cells = 0
    for text, end in pieces_of_xml(sheet()):
        n_bytes += end
        n_cells += _n_shared_cells(text, end)
    n_most = n_bytes + n_cells * longest
    return n_most if n_most <= MAX_TEXT_BYTES else _close_bound(sheet, shared)


def _close_bound(sheet: Chunks, shared: Chunks) -> int:
    """Look up the texts of ordinary cells; all others count as the longest text."""
    lengths = array("q", (_n_text(text) for text in _shared_texts(shared())))
    longest = max(lengths, default=0)
    if not _are_counted(shared()):
        lengths = array("q")
    n_bytes = 0
    is_raw = False  # there may be markup that is text
    for text, end in pieces_of_xml(sheet()):
        is_raw = is_raw or _RAW in text
        numbers = [count_of(found[1]) for found in _SHARED_CELL.finditer(text) if found.start() < end]
        n_bytes += end if is_raw else _n_text(text[:end])
        n_bytes += sum(lengths[i] if i < len(lengths) else longest for i in numbers)
        n_bytes += (_n_shared_cells(text, end) - len(numbers)) * longest
    return n_bytes


def _n_text(xml: bytes) -> int:
    return len(xml) if _RAW in xml else len(_MARKUP.sub(b"", xml))


def _n_shared_cells(text: bytes, end: int) -> int:
    return sum(text.count(kind, 0, end) for kind in _SHARED_TYPES)


def _shared_texts(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the XML of each shared text; of several together, if they are not written as usual."""
    text = b""
    for chunk in chunks:
        text += chunk
        *texts, text = [text] if _RAW in text else text.split(_END)
        yield from texts
        if len(text) > _MAX_SHARED_BYTES:
            raise UncheckedSheetError("a shared text is longer than 64 MiB")
    yield text


def _are_counted(chunks: Iterator[bytes]) -> bool:
    """Return True if the end tags show the number of each text: no empty tags, prefixes or comments."""
    n_starts = n_ends = 0
    for text, end in pieces_of_xml(chunks):
        n_starts += text.count(b"<si", 0, end)
        n_ends += text.count(_END, 0, end)
        if b":si" in text or _RAW in text:
            return False
    return n_starts == n_ends
