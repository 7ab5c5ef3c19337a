"""The header of a model file, read without the arrays, so that a file can be refused before it takes memory."""

import io
import json
import struct
import zipfile
from typing import Any

from imondrian.storage import DIGEST_LENGTH, complaints_about

_NAME = "header.json"
_MOST_BYTES = 2**22  # of a header; the longest names of as many features as may be take 3 MB
_MOST_MEMBERS, _MOST_LISTED = 64, 2**16  # and bytes of the list of them
_END = struct.Struct("<4s4H2IH")  # the last record of a zip, before its comment
_END_SIGNATURE, _LONG_SIGNATURE = b"PK\x05\x06", b"PK\x06\x07"
_LONG_SIZE = 20  # of what stands before it in a zip of more than 65,535 members or 2 GB


def header_of(content: bytes) -> dict[str, Any]:
    """Return the header of a model file; a file that has none is a DamagedFileError.

    The arrays and the digest are not looked at: whoever reads the whole file checks them.
    """
    with complaints_about("The model"):
        _check_end(content)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            member = archive.getinfo(_NAME)
            if member.compress_type != zipfile.ZIP_STORED or member.file_size > _MOST_BYTES:
                raise ValueError(f"the header must be stored without compression, in at most {_MOST_BYTES} bytes.")
            header = json.loads(archive.read(member))
        if not isinstance(header, dict):
            raise TypeError(f"the header must be an object, but is {header!r:.100}.")
    return header


def _check_end(content: bytes) -> None:
    """Refuse a zip that does not end as a model file does, or has so many members that listing them takes long."""
    end = len(content) - _END.size - DIGEST_LENGTH
    if end < 0 or content[:2] != b"PK" or content.rfind(_END_SIGNATURE) != end:
        raise ValueError("this is not a model file, or it is cut or altered.")
    *_, n_members, n_listed, _, _ = _END.unpack_from(content, end)
    is_long = content.startswith(_LONG_SIGNATURE, max(end - _LONG_SIZE, 0))
    if is_long or n_members > _MOST_MEMBERS or n_listed > _MOST_LISTED:
        raise ValueError(f"the file has {n_members} members, but may have at most {_MOST_MEMBERS}.")
