"""The end of a zip archive: it must be such that all readers find the same directory of members."""

import struct
from collections.abc import Iterator

from imondrian.base.errors import InvalidInputError

_END, _LONG_END, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_SECOND_NAME = 0x7075  # a field with a name in UTF-8, which replaces the name of a member
_FIELD_BYTES = 4  # before the content of a field
_END_BYTES, _LONG_END_BYTES, _LOCATOR_BYTES = 22, 56, 20


def check_directory(content: bytes, name: str) -> None:
    """Raise InvalidInputError if readers may disagree about where the directory of a zip archive is.

    Python's zipfile checks a workbook, and another reader loads it. zipfile uses the last end record. The other reader
    searches the whole file for one that suits it, from the end. Therefore the last end record must be consistent, and
    there must not be another one, not even inside of a member. An archive without an end record is accepted here,
    since all readers refuse it.

    Parameters
    ----------
    content : bytes
        The archive.
    name : str
        Name of the file in error messages.
    """
    last = content.rfind(_END)
    if last < 0:
        return
    if not _is_consistent(content, last) or any(_is_plausible(content, end) for end in _ends(content, last)):
        raise InvalidInputError(f"{name} is damaged: its directory is ambiguous; save the table as CSV.")


def has_second_name(extra: bytes) -> bool:
    r"""Return True if the extra fields of a member contain another name: only some readers use it.

    Examples
    --------
    >>> has_second_name(b"UT\x01\x00up"), has_second_name(b"UT\x01\x00\x07up\x00\x00")
    (False, True)
    """
    position = 0
    while position + _FIELD_BYTES <= len(extra):
        kind, n_bytes = struct.unpack_from("<HH", extra, position)
        if kind == _SECOND_NAME:
            return True
        position += _FIELD_BYTES + n_bytes
    return False


def _ends(content: bytes, last: int) -> Iterator[int]:
    """Yield the positions before the last one at which there may be an end record."""
    end = content.find(_END, 0, last)
    while end >= 0:
        yield end
        end = content.find(_END, end + 1, last)


def _is_plausible(content: bytes, end: int) -> bool:
    """Return True if a reader may accept an end record; compressed data contain its first bytes by chance, too."""
    disk, directory_disk = struct.unpack_from("<4xHH", content, end)
    return bool(disk == directory_disk) or _has_locator(content, end)


def _is_consistent(content: bytes, end: int) -> bool:
    """Return True if the archive ends with the end record, and the directory ends where the end records begin."""
    if end + _END_BYTES > len(content):
        return False
    n_members, n_bytes, offset, n_comment = struct.unpack_from("<10xHIIH", content, end)
    if end + _END_BYTES + n_comment != len(content):
        return False
    if not _has_locator(content, end):
        return bool(offset + n_bytes == end)
    long_end = end - _LOCATOR_BYTES - _LONG_END_BYTES
    if long_end < 0 or not content.startswith(_LONG_END, long_end):
        return False
    (located,) = struct.unpack_from("<8xQ4x", content, end - _LOCATOR_BYTES)
    long_fields = struct.unpack_from("<32xQQQ", content, long_end)
    fields = ((n_members, 2**16 - 1), (n_bytes, 2**32 - 1), (offset, 2**32 - 1))
    agree = all(value in (long, unknown) for (value, unknown), long in zip(fields, long_fields, strict=True))
    return bool(agree and located == long_end and long_fields[1] + long_fields[2] == long_end)


def _has_locator(content: bytes, end: int) -> bool:
    """Return True if there is a 64-bit end record, too: its locator precedes the end record."""
    return content.startswith(_LOCATOR, max(end - _LOCATOR_BYTES, 0))
