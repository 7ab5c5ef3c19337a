"""The container of a model file: a zip of uncompressed members that ends with a digest of everything before it.

A damaged file raises ValueError or an error of `zipfile`. Reading never needs more memory than a small multiple of the
file's length: the directory of the zip is checked before `zipfile` reads it, and the lengths that it states for the
members are checked before any member is read. A file is written as a whole and, except by `open_unverified`, read as a
whole; its members are then views of its content in memory.
"""

import hashlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

_DIGEST_LENGTH = 64  # SHA-256 in hexadecimal digits, the last bytes of the file
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)  # constant, so that equal content gives equal files
_MAX_MEMBERS, _MAX_DIRECTORY = 64, 2**16
_END = struct.Struct("<4s4H2IH")  # the last record of a zip, before its comment
_END64 = struct.Struct("<4sQ2H2L4Q")  # its counterpart in a zip of more than 2 GiB
_LOCATOR64_SIZE = 20
_LOCAL = struct.Struct("<4s5H3I2H")  # the record before the content of a member
_LOCAL_MARK = b"PK\x03\x04"
_END_MARK, _END64_MARK, _LOCATOR64_MARK = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


@contextmanager
def create(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an archive in memory for adding members; on exit, write it with its digest to the file in one call.

    `zipfile` goes back to the start of each member, which in a file would take several system calls.
    """
    buffer = io.BytesIO()
    archive = zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED)
    try:
        archive.comment = b"-" * _DIGEST_LENGTH
        yield archive
        archive.close()
    except BaseException:
        archive.fp = None  # not closed: the archive is incomplete, and an open member would raise another error
        raise
    content = buffer.getbuffer()
    content[-_DIGEST_LENGTH:] = _digest(content)
    file.write(content)


def create_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a new member for writing; the caller closes it."""
    return archive.open(zipfile.ZipInfo(name, _TIMESTAMP), "w", force_zip64=True)


class Members:
    """The members of an archive in memory; their contents are views, which are not copied.

    Parameters
    ----------
    content : bytes
        The archive.
    """

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        with _open(io.BytesIO(content)) as archive:
            self.names = archive.namelist()
            self._members = {member.filename: member for member in archive.infolist()}

    def content(self, name: str) -> memoryview:
        """Return the content of a member; raise ValueError if its records contradict each other or the content."""
        if name not in self._members:
            raise ValueError(f"the member {name} is missing.")
        member = self._members[name]
        record = self._content[member.header_offset :][: _LOCAL.size]
        if len(record) < _LOCAL.size or member.file_size != member.compress_size:
            raise ValueError(f"the record of the member {name} is damaged.")
        mark, *_, flags, method, _, _, _, _, _, n_name, n_extra = _LOCAL.unpack(record)
        first = member.header_offset + _LOCAL.size
        start = first + n_name + n_extra
        found = self._content[start : start + member.file_size]
        is_sound = mark == _LOCAL_MARK and method == zipfile.ZIP_STORED and not flags & 1
        if not is_sound or bytes(self._content[first : first + n_name]) != name.encode():
            raise ValueError(f"the record of the member {name} is damaged.")
        if len(found) != member.file_size or zlib.crc32(found) != member.CRC:
            raise ValueError(f"the content of the member {name} is damaged.")
        return found


def read_verified(file: IO[bytes]) -> Members:
    """Read a file, check its digest, and return its members."""
    _check_directory(file)  # before the whole file is read
    file.seek(0)
    content = file.read()
    _check_directory(io.BytesIO(content))  # the file may have changed
    if content[-_DIGEST_LENGTH:] != _digest(memoryview(content)):
        raise ValueError("the file is truncated or altered: its digest is wrong.")
    return Members(content)


@contextmanager
def open_unverified(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open the archive for reading without checking the digest, which is slow for large files."""
    _check_directory(file)
    with _open(file) as archive:
        yield archive


def digest_of(content: bytes) -> bytes:
    """Return the digest at the end of a file's content; equal digests mean equal files."""
    return content[-_DIGEST_LENGTH:]


def _check_directory(file: IO[bytes]) -> None:
    """Raise ValueError if the end is not that of a model file, or the directory is too large; seek to the digest."""
    end = file.seek(0, os.SEEK_END) - _END.size - _DIGEST_LENGTH
    file.seek(0)
    if file.read(2) != b"PK":
        raise ValueError("this is not a model file.")
    if end < 0 or _read_at(file, end, _END.size + _DIGEST_LENGTH).rfind(_END_MARK) != 0:
        raise ValueError("the file is truncated or altered: it does not end as a model file does.")
    *_, n_members, n_bytes, _, _ = _END.unpack(_read_at(file, end, _END.size))
    for n, length in [(n_members, n_bytes), *_sizes_in_end64(file, end - _LOCATOR64_SIZE)]:
        if n > _MAX_MEMBERS or length > _MAX_DIRECTORY:
            raise ValueError(
                f"the file has {n} members, listed in {length} bytes, but may have at most {_MAX_MEMBERS}"
                f" in {_MAX_DIRECTORY} bytes."
            )
    file.seek(end + _END.size)


def _sizes_in_end64(file: IO[bytes], locator: int) -> Iterator[tuple[int, int]]:
    """Yield the number of members and the length of the directory from the 64-bit end record, if there is one."""
    record = locator - _END64.size
    if record >= 0 and _read_at(file, locator, 4) == _LOCATOR64_MARK and _read_at(file, record, 4) == _END64_MARK:
        *_, n_members, n_bytes, _ = _END64.unpack(_read_at(file, record, _END64.size))
        yield n_members, n_bytes


@contextmanager
def _open(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an archive whose directory is checked, and check its members."""
    with zipfile.ZipFile(file) as archive:
        _check_members(archive.infolist(), file.seek(0, os.SEEK_END))
        yield archive


def _check_members(members: list[zipfile.ZipInfo], n_bytes_in_file: int) -> None:
    """Raise ValueError if a member is compressed, or if the members are longer than the file.

    To read a member from a file on disk, Python allocates the length that the directory states, even if the file is
    shorter.
    """
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"the member {member.filename} is compressed.")
    n_bytes = sum(max(member.compress_size, member.file_size) for member in members)
    if n_bytes > n_bytes_in_file:
        raise ValueError(f"the members have {n_bytes} bytes, but the file has only {n_bytes_in_file}.")


def _read_at(file: IO[bytes], position: int, n_bytes: int) -> bytes:
    file.seek(position)
    return file.read(n_bytes)


def _digest(content: memoryview) -> bytes:
    """Compute the digest of all bytes before the stored digest."""
    return hashlib.sha256(content[:-_DIGEST_LENGTH]).hexdigest().encode()
