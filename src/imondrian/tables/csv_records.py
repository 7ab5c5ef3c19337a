"""Find where the records of CSV end, exactly as Python's csv module does, in linear time.

A quote opens a quoted field only at the start of a field; anywhere else in an unquoted field it is an ordinary
character. Therefore counting quotes does not show whether a line end is inside quotes: the separator must be known.
"""

import csv
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAX_FIELDS = 100_000  # of a record; each field that is split off needs 30 times the memory of its separator
_LF, _CR, _QUOTE = b'\n\r"'
_BLANK_LINES = re.compile(rb"(?<=\n)[\r\n]++")  # a possessive match needs constant memory
_WHITE_SPACE = re.compile(rb"\s*+")
_UNCLOSED = -1
_FIRST_WINDOW = 2**12  # number of bytes that are searched first for the end of a record
_GROWTH = 8  # factor by which the window grows if it contains no end
_MAX_FIELD = 2**31 - 1  # characters; the largest limit that every platform accepts
_limit_lock = threading.Lock()  # the limit of the csv module is global

# A reader has four states. Each is represented by a short text after which a reader is in this state.
_AT_FIELD_START = b""
_IN_FIELD = b"\x80"  # any character that is neither a separator, a quote nor a line end
_IN_QUOTES = b'"'
_AFTER_QUOTE = b'""'  # the second quote closes the field, unless another quote follows


class CsvBlock(NamedTuple):
    """Complete records of CSV."""

    text: bytes
    # True: no quotes in unquoted fields, and no CR without LF outside of quotes; all readers agree on such text
    is_regular: bool


class RecordCutter:
    r"""Cuts CSV that arrives in pieces into blocks of complete records; each piece is scanned once.

    Parameters
    ----------
    separator : str
        The separator of fields.

    Examples
    --------
    >>> cutter = RecordCutter(",")
    >>> cutter.cut(b'1,5" pipe\n2,"two').text
    b'1,5" pipe\n'
    >>> cutter.cut(b'\nlines"\n3,').text
    b'2,"two\nlines"\n'
    >>> cutter.rest().text
    b'3,'
    """

    def __init__(self, separator: str) -> None:
        self._separator = separator.encode()
        self._pending: list[bytes] = []  # parts of a record without its end
        self._state = _AT_FIELD_START  # state of a reader after the pending parts
        self._is_regular = True  # whether the pending parts are regular, as in CsvBlock

    def cut(self, piece: bytes) -> CsvBlock:
        """Return the records that end in a piece, starting with the pending one; keep the rest of the piece."""
        if not piece:
            return CsvBlock(b"", is_regular=True)
        text = self._state + piece
        quotes, is_regular = structural_quotes(text, self._separator)
        is_regular = is_regular and not _has_lone_cr(text, quotes)
        end = _end_of_last_record(text, quotes)
        self._is_regular = self._is_regular and is_regular
        block = CsvBlock(b"", is_regular=True)
        if end > 0:
            end_in_piece = end - len(self._state)  # positive: the state contains no line end
            block = CsvBlock(b"".join([*self._pending, piece[:end_in_piece]]), self._is_regular)
            piece = piece[end_in_piece:]
            self._pending, self._is_regular = [], is_regular or not piece
        if piece:
            self._pending.append(piece)
        self._state = self._state_after(text, quotes) if self._pending else _AT_FIELD_START
        return block

    def rest(self) -> CsvBlock:
        """Return the pending record, which has no line end; nothing is pending after that."""
        block = CsvBlock(b"".join(self._pending), self._is_regular)
        self._pending, self._state, self._is_regular = [], _AT_FIELD_START, True
        return block

    @property
    def n_pending(self) -> int:
        """Number of bytes of the pending record."""
        return sum(map(len, self._pending))

    @property
    def is_in_quotes(self) -> bool:
        """Whether the pending record ends inside a quoted field."""
        return self._state == _IN_QUOTES

    def _state_after(self, text: bytes, quotes: NDArray[np.intp]) -> bytes:
        """Return the state of a reader after a text that is not empty."""
        if quotes.size % 2 == 1:
            return _IN_QUOTES
        if quotes.size and quotes[-1] == len(text) - 1:
            return _AFTER_QUOTE
        return _AT_FIELD_START if text[-1:] == self._separator else _IN_FIELD


def first_records(text: bytes, separators: str, n_records: int, *, is_complete: bool) -> list[tuple[int, int]]:
    """Return the positions of the first byte and of the line end, for each of the first records that are not blank.

    Parameters
    ----------
    text : bytes
        Starts with a record.
    separators : str
        The separator of fields, or all possible separators.
    n_records : int
        The number of records to find.
    is_complete : bool
        True if the last record may lack a line end. Then, a record with an unclosed quote ends at its first line end.
    """
    found: list[tuple[int, int]] = []
    first = _after_blank_lines(text, 0)
    while first < len(text) and len(found) < n_records:
        end = _end_of_first_record(text, first, separators.encode())
        if end in (len(text), _UNCLOSED) and not is_complete:
            break
        if end == _UNCLOSED:
            end = text.find(b"\n", first) % (len(text) + 1)  # -1 becomes the length
        if text[first:end].strip():
            found.append((first, end))
        first = _after_blank_lines(text, end + 1)
    return found


def first_wide_record(text: bytes, separator: str) -> int | None:
    """Return the number of records before the first record with more than `MAX_FIELDS` fields; None if there is none.

    Fields are counted without splitting the records, which saves memory.
    """
    if len(text) < MAX_FIELDS or text.count(separator.encode()) < MAX_FIELDS:
        return None
    quotes, _ = structural_quotes(text, separator.encode())
    n_before = first = 0
    for end in (*_line_ends(text, 0, quotes).tolist(), len(text)):
        if end - first >= MAX_FIELDS and _n_fields(text[first:end], separator.encode()) > MAX_FIELDS:
            return n_before
        n_before += end > first  # blank lines are not records
        first = end + 1
    return None


def without_blank_lines(text: bytes) -> bytes:
    """Remove blank lines outside of quotes from a regular text: they are not records."""
    if _has_blank_lines(text):
        parts = text.split(b'"')
        parts[::2] = [_BLANK_LINES.sub(b"", part) for part in parts[::2]]
        text = b'"'.join(parts)
    return text.lstrip(b"\r\n").rstrip(b"\r")  # the LF after a CR at the end may be in the next block


def structural_quotes(text: bytes, separators: bytes) -> tuple[NDArray[np.intp], bool]:
    """Return the positions of quotes that alternately open and close quoted text, and True if no other quotes exist.

    A position is inside quotes if the number of these quotes before it is odd. A doubled quote inside a quoted field
    closes the field and opens it again.
    """
    if b'"' not in text:
        return np.empty(0, np.intp), True
    characters = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(characters == _QUOTE)
    if _are_regular(characters, quotes, separators):
        return quotes, True
    positions = []
    for quoted in _quoted_text(separators).finditer(text):
        positions.append(quoted.start())
        if quoted[1]:
            positions.append(quoted.end() - 1)
    return np.array(positions, np.intp), False


@contextmanager
def long_fields() -> Iterator[None]:
    """Allow fields of any length in the csv module, which by default limits them to 131,072 characters."""
    with _limit_lock:
        before = csv.field_size_limit(_MAX_FIELD)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _n_fields(record: bytes, separator: bytes) -> int:
    quotes, _ = structural_quotes(record, separator)
    is_quote = np.zeros(len(record), np.uint8)
    is_quote[quotes] = 1
    is_inside = np.bitwise_xor.accumulate(is_quote)
    is_separator = np.frombuffer(record, np.uint8) == separator[0]
    return 1 + int(np.count_nonzero(is_separator & (is_inside == 0)))


def _are_regular(characters: NDArray[np.uint8], quotes: NDArray[np.intp], separators: bytes) -> bool:
    """Return True if quotes alternately open and close fields; a doubled quote closes a field and opens it again."""
    opening, closing = quotes[0::2], quotes[1::2]
    before = characters[opening[int(opening[0] == 0) :] - 1]
    after = characters[closing[: np.searchsorted(closing, characters.size - 1)] + 1]
    return all(_are_among(neighbours, separators + b'\r\n"') for neighbours in (before, after))


def _are_among(characters: NDArray[np.uint8], allowed: bytes) -> bool:
    are_allowed = np.zeros(characters.size, bool)
    for character in allowed:
        are_allowed |= characters == character
    return bool(are_allowed.all())


def _quoted_text(separators: bytes) -> re.Pattern[bytes]:
    """Return a pattern of quoted text from its opening quote to its closing quote (group 1) or the end of the text.

    Once the opening quote matches, the pattern cannot fail, so the time is linear.
    """
    opening = rb'"(?<![^%s\r\n]")' % re.escape(separators)
    return re.compile(opening + rb'[^"]*+(?:""[^"]*+)*+(")?')


def _has_lone_cr(text: bytes, quotes: NDArray[np.intp]) -> bool:
    """Return True if a CR outside of quotes is not followed by LF; the last character is not examined."""
    if b"\r" not in text:
        return False
    characters = np.frombuffer(text, np.uint8)
    returns = np.flatnonzero(characters[:-1] == _CR)
    lone = returns[characters[returns + 1] != _LF]
    return bool((np.searchsorted(quotes, lone) % 2 == 0).any())


def _has_blank_lines(text: bytes) -> bool:
    """Return True if a line end follows another one, inside or outside of quotes."""
    characters = np.frombuffer(text, np.uint8)
    are_ends = characters == _LF
    if (are_ends[:-1] & are_ends[1:]).any():
        return True
    return b"\r" in text and bool((are_ends[:-1] & (characters[1:] == _CR)).any())


def _end_of_last_record(text: bytes, quotes: NDArray[np.intp]) -> int:
    """Return the position after the last line end outside of quotes, or 0."""
    n_bytes = _FIRST_WINDOW
    while True:
        first = max(len(text) - n_bytes, 0)
        ends = _line_ends(text, first, quotes)
        if ends.size or first == 0:
            return int(ends[-1]) + 1 if ends.size else 0
        n_bytes *= _GROWTH


def _end_of_first_record(text: bytes, first: int, separators: bytes) -> int:
    """Return the position of the line end of the record that starts at `first`.

    If the record has no line end, return the length of the text, or _UNCLOSED if the text ends inside of quotes.
    """
    n_bytes = _FIRST_WINDOW
    while True:
        window = text[first : first + n_bytes]
        quotes, _ = structural_quotes(window, separators)
        ends = _line_ends(window, 0, quotes)
        if ends.size:
            return first + int(ends[0])
        if len(window) < n_bytes:
            return _UNCLOSED if quotes.size % 2 == 1 else len(text)
        n_bytes *= _GROWTH


def _after_blank_lines(text: bytes, first: int) -> int:
    """Return the position after lines that contain only white space; `first` is the start of the first of them."""
    space = _WHITE_SPACE.match(text, first)
    end = space.end() if space else first
    return max(text.rfind(b"\n", first, end), text.rfind(b"\r", first, end), first - 1) + 1


def _line_ends(text: bytes, first: int, quotes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the positions of CR and LF outside of quotes, beginning at `first`."""
    characters = np.frombuffer(text, np.uint8)[first:]
    ends = first + np.flatnonzero((characters == _LF) | (characters == _CR))
    return ends[np.searchsorted(quotes, ends) % 2 == 0]
