"""Convert text to UTF-8; its encoding is recognised by the byte order mark, zero bytes, or bytes beyond ASCII."""

import codecs
from collections.abc import Callable

from imondrian.base.errors import InvalidInputError

AUTO = "auto"
_MARKS = {  # UTF-32 first: its mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_FALLBACK, _FALLBACK_NAME = "cp1252", "Windows-1252"
_START_BYTES = 1000  # searched for the zero bytes of UTF-16
Read = Callable[[int], bytes]


class Utf8Reader:
    """Reads text in any encoding, and returns it as UTF-8.

    With the encoding "auto", text without a byte order mark is UTF-16 if most bytes at even or odd positions are zero.
    Otherwise, it is UTF-8 if its first bytes beyond ASCII are valid UTF-8, and Windows-1252 if they are not. Text in
    UTF-8 is returned unchanged.

    Parameters
    ----------
    read : callable
        Returns at most n bytes; an empty result is the end.
    encoding : str
        A name of an encoding that Python knows, or "auto".
    name : str
        Name of the text in error messages.
    """

    def __init__(self, read: Read, encoding: str, name: str) -> None:
        self._read = read
        self._name = name
        self._encoding = None if encoding == AUTO else check_encoding(encoding)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_at_start = True
        self.note: str | None = None  # which encoding was assumed, if there was doubt

    def read(self, n_bytes: int) -> bytes:
        """Return about `n_bytes` bytes of UTF-8; an empty result is the end."""
        raw = self._read(n_bytes)
        if self._encoding is None:
            raw = self._recognise(raw)
        if self._encoding in (None, "utf-8"):
            return raw
        self._decoder = self._decoder or codecs.getincrementaldecoder(self._encoding)()
        decoded = self._decode(self._decoder, raw)
        while raw and not decoded:  # only a part of a character so far
            raw = self._read(n_bytes)
            decoded = self._decode(self._decoder, raw)
        try:
            return decoded.encode()
        except UnicodeEncodeError:  # some encodings can express half of a surrogate pair
            raise self._not_valid("half of a surrogate pair") from None

    def _recognise(self, raw: bytes) -> bytes:
        """Set the encoding if these bytes determine it (ASCII does not), and return them.

        If they end inside a character, its remaining bytes are read and returned too. Otherwise, that character would
        look incomplete, and the text would not be recognised as UTF-8.
        """
        if self._is_at_start:
            self._is_at_start = False
            self._encoding = _encoding_by_mark(raw) or _utf_16_without_mark(raw[:_START_BYTES])
        if self._encoding is None and not raw.isascii():
            while _is_utf_8(raw) and not _is_utf_8(raw, is_complete=True) and (following := self._read(1)):
                raw += following
            self._encoding = "utf-8" if _is_utf_8(raw, is_complete=True) else _FALLBACK
            if self._encoding == _FALLBACK:
                self.note = f"the text is not UTF-8 and was read as {_FALLBACK_NAME} (--encoding chooses another one)"
        return raw

    def _decode(self, decoder: codecs.IncrementalDecoder, raw: bytes) -> str:
        try:
            return decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            if not str(self._encoding).startswith(("utf-16", "utf-32")):  # these have zero bytes in text
                check_not_binary(raw, self._name)
            raise self._not_valid(f"the byte 0x{error.object[error.start]:02x}") from None
        except UnicodeError as error:  # of UTF-16 without a byte order mark, and of punycode
            raise self._not_valid(f"the text ({error})") from None

    def _not_valid(self, what: str) -> InvalidInputError:
        return InvalidInputError(f"{self._name}: {what} is not valid in {self._encoding}: choose another --encoding.")


def check_encoding(name: str) -> str:
    """Return the standard name of an encoding; raise an InvalidInputError if it is unknown."""
    try:
        found = codecs.lookup(name).name
        "".encode(found)  # fails for codecs that are not encodings of text
    except (LookupError, ValueError):
        raise InvalidInputError(
            f"The encoding {name!r} is unknown: choose one such as utf-8, utf-16, cp1252 or latin-1."
        ) from None
    return {"utf-8-sig": "utf-8", "ascii": "utf-8"}.get(found, found)


def check_not_binary(content: bytes, name: str) -> None:
    """Raise InvalidInputError if bytes that are not valid text contain a zero byte: no encoding would help."""
    if 0 in content:
        raise InvalidInputError(
            f"{name} is a binary file, but was read as text: a table must be CSV, TSV, NDJSON, Parquet or Excel"
            " (--format chooses the format)."
        )


def _encoding_by_mark(start: bytes) -> str | None:
    return next((encoding for mark, encoding in _MARKS.items() if start.startswith(mark)), None)


def _utf_16_without_mark(start: bytes) -> str | None:
    """Return the encoding if most bytes at even, or at odd, positions are zero, as in European text in UTF-16.

    Return None otherwise. Binary data may look similar, but has pairs of zeros, which text does not.
    """
    halves = {"utf-16-be": start[0::2], "utf-16-le": start[1::2]}
    if any(first == second == 0 for first, second in zip(*halves.values(), strict=False)):
        return None
    return next((name for name, half in halves.items() if len(half) > 1 and 2 * half.count(0) > len(half)), None)


def _is_utf_8(raw: bytes, *, is_complete: bool = False) -> bool:
    """Return True if bytes are UTF-8; unless `is_complete`, the last character may lack bytes."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw, final=is_complete)
    except UnicodeDecodeError:
        return False
    return True
