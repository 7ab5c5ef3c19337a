"""The write-ahead log of SQLite, looked at before it is opened for a damaged end that SQLite passes over in silence.

What was committed since the last checkpoint stands in this file, as frames of a page each, with checksums. SQLite reads
up to the last commit before the first frame that is not sound. If commits follow, then more was lost than what a power
cut interrupts. (The layout of the file: https://www.sqlite.org/fileformat2.html#walformat.)
"""

import struct
from pathlib import Path

_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page size, checkpoint, salts, checksums
_FRAME = struct.Struct(">IIIIII")  # page, pages after a commit, salts, checksums
_WORDS = {0x377F0682: "<", 0x377F0683: ">"}  # by the magic number: how checksums read words


class Log:
    """What a log says of itself, be it sound or not.

    Attributes
    ----------
    n_committed : int
        Number of the last frame, counted from 1, that ends a commit; 0 without any.
    is_sound : bool
        Whether the head of the file is; there may be no file at all.
    """

    def __init__(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        self.n_committed, self.is_sound = 0, True
        if len(content) <= _HEADER.size:
            return
        self.is_sound = _is_sound(content[: _HEADER.size])
        _, _, page_size, _, *salts, _, _ = _HEADER.unpack_from(content)
        size = _FRAME.size + page_size
        for i in range((len(content) - _HEADER.size) // size):
            _, n_pages, *rest = _FRAME.unpack_from(content, _HEADER.size + i * size)
            if n_pages and rest[:2] == salts:  # others are left over from before the last checkpoint
                self.n_committed = i + 1


def _is_sound(header: bytes) -> bool:
    """Tell whether the checksum of the header is right."""
    magic, *_, first, second = _HEADER.unpack(header)
    if magic not in _WORDS:
        return False
    words, ours, other = struct.unpack(f"{_WORDS[magic]}6I", header[:24]), 0, 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        ours = (ours + even + other) % 2**32
        other = (other + odd + ours) % 2**32
    return (ours, other) == (first, second)
