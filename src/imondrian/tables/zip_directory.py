"""The end of a zip archive: it must be such that all readers find the same directory of members."""

import struct

from imondrian.base.errors import InvalidInputError

_END, _LONG_END, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_BYTES, _LONG_END_BYTES, _LOCATOR_BYTES = 22, 56, 20
_MAX_COMMENT_BYTES = 2**16 - 1


def check_directory(content: bytes, name: str) -> None:
    """Raise InvalidInputError if readers may disagree about where the directory of a zip archive is.

    Python's zipfile checks a workbook, and another reader loads it. They choose different directories if there are
    several end records and the last one has a wrong length. An archive without an end record is accepted here, since
    all readers refuse it.

    Parameters
    ----------
    content : bytes
        The archive.
    name : str
        Name of the file in error messages.
    """
    first = max(len(content) - _END_BYTES - _MAX_COMMENT_BYTES, 0)
    n_ends = content.count(_END, first)
    if n_ends > 1 or (n_ends == 1 and not _is_consistent(content, content.index(_END, first))):
        raise InvalidInputError(f"{name} is damaged: its directory is ambiguous.")


def _is_consistent(content: bytes, end: int) -> bool:
    """Return True if the archive ends with the end record, and the directory ends where the end records begin."""
    if end + _END_BYTES > len(content):
        return False
    n_members, n_bytes, offset, n_comment = struct.unpack_from("<10xHIIH", content, end)
    if end + _END_BYTES + n_comment != len(content):
        return False
    if not content.startswith(_LOCATOR, max(end - _LOCATOR_BYTES, 0)):
        return bool(offset + n_bytes == end)
    long_end = end - _LOCATOR_BYTES - _LONG_END_BYTES
    if long_end < 0 or not content.startswith(_LONG_END, long_end):
        return False
    (located,) = struct.unpack_from("<8xQ4x", content, end - _LOCATOR_BYTES)
    long_fields = struct.unpack_from("<32xQQQ", content, long_end)
    fields = ((n_members, 2**16 - 1), (n_bytes, 2**32 - 1), (offset, 2**32 - 1))
    agree = all(value in (long, unknown) for (value, unknown), long in zip(fields, long_fields, strict=True))
    return bool(agree and located == long_end and long_fields[1] + long_fields[2] == long_end)
