"""The shell of a model file: a zip of members stored as they are, with a digest of everything at its end.

What is wrong with a file is a ValueError, or one of the errors of `zipfile`. No file makes this take more memory than a
small multiple of its own length: the directory of the zip is looked at before `zipfile` reads it.
"""

import hashlib
import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

_DIGEST_LENGTH = 64  # sha256, in hexadecimal digits; the last bytes of a file
_NEVER = (1980, 1, 1, 0, 0, 0)  # so that the same content gives the same file
_MAX_MEMBERS, _MAX_DIRECTORY = 64, 2**16
_END = struct.Struct("<4s4H2IH")  # the last record of a zip, before its comment
_END64 = struct.Struct("<4sQ2H2L4Q")  # what takes its place in a zip of more than 2 GiB
_LOCATOR64_SIZE = 20
_END_MARK, _END64_MARK, _LOCATOR64_MARK = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"


@contextmanager
def writing(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an empty file to write members into it; it is sealed at the end."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = b"-" * _DIGEST_LENGTH
        yield archive
    digest = _digest(file)
    file.seek(-_DIGEST_LENGTH, os.SEEK_END)
    file.write(digest)


@contextmanager
def new_member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """Open a member to write it."""
    with archive.open(zipfile.ZipInfo(name, _NEVER), "w", force_zip64=True) as member:
        yield member


@contextmanager
def reading(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open a sealed file to read its members."""
    _check_directory(file)
    if file.read(_DIGEST_LENGTH + 1) != _digest(file):
        raise ValueError("the file is cut or altered: its digest is wrong.")
    with zipfile.ZipFile(file) as archive:
        yield archive


@contextmanager
def reading_unsealed(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open a file to look at a member without the time that checking the digest takes."""
    _check_directory(file)
    with zipfile.ZipFile(file) as archive:
        yield archive


@contextmanager
def member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    """Open a member that is stored as it is."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed.")
    with archive.open(name) as opened:
        yield opened


def digest_of(content: bytes) -> bytes:
    """Return the digest with which a file ends: two files that have the same are the same."""
    return content[-_DIGEST_LENGTH:]


def _check_directory(file: IO[bytes]) -> None:
    """Refuse a file that does not end as ours do, or whose directory is too long; stop where its digest begins."""
    end = file.seek(0, os.SEEK_END) - _END.size - _DIGEST_LENGTH
    file.seek(0)
    if file.read(2) != b"PK":
        raise ValueError("this is not a model file.")
    if end < 0 or _read_at(file, end, _END.size + _DIGEST_LENGTH).rfind(_END_MARK) != 0:
        raise ValueError("the file is cut or altered: it does not end as a model file does.")
    *_, n_members, n_bytes, _, _ = _END.unpack(_read_at(file, end, _END.size))
    for n, length in [(n_members, n_bytes), *_sizes_in_end64(file, end - _LOCATOR64_SIZE)]:
        if n > _MAX_MEMBERS or length > _MAX_DIRECTORY:
            raise ValueError(
                f"the file has {n} members, listed in {length} bytes, but may have {_MAX_MEMBERS} at most."
            )
    file.seek(end + _END.size)


def _sizes_in_end64(file: IO[bytes], locator: int) -> Iterator[tuple[int, int]]:
    """Yield number of members and length of the directory as the longer last record has them, if there is one."""
    record = locator - _END64.size
    if record >= 0 and _read_at(file, locator, 4) == _LOCATOR64_MARK and _read_at(file, record, 4) == _END64_MARK:
        *_, n_members, n_bytes, _ = _END64.unpack(_read_at(file, record, _END64.size))
        yield n_members, n_bytes


def _read_at(file: IO[bytes], position: int, n_bytes: int) -> bytes:
    file.seek(position)
    return file.read(n_bytes)


def _digest(file: IO[bytes]) -> bytes:
    """Digest all bytes before the place of the digest, and stop there."""
    left = file.seek(0, os.SEEK_END) - _DIGEST_LENGTH
    file.seek(0)
    sha = hashlib.sha256()
    while left > 0:
        block = file.read(min(left, 2**20))
        sha.update(block)
        left -= len(block)
    return sha.hexdigest().encode()
