"""Read MATLAB files (.mat, versions 5 to 7) as published by ODDS: the arrays X and y.

SciPy reads such files too, but a damaged file can crash the process while SciPy reads it. These two arrays need only a
small part of the format.
"""

import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from imondrian.base.errors import DamagedFileError
from imondrian.datasets.content import MAX_BYTES, Content, as_content
from imondrian.datasets.sources import Source, open_source
from imondrian.engine.jit import Array

_HEADER_BYTES = 128
_ENDIANS = {b"IM": "<", b"MI": ">"}  # by the last two bytes of the header
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMERIC_CLASSES = range(6, 16)  # double, single, and integers of 8 to 64 bits
_COMPLEX = 0x0800
_HDF5 = b"MATLAB 7.3"


class _Element(NamedTuple):
    kind: int
    data: memoryview


def read(source: Source, where: str, label: str) -> Content:
    """Read the variables X and `label`."""
    with open_source(source) as file:
        data = file.read()
    if data.startswith(_HDF5):
        raise DamagedFileError(
            f"{where} is a MATLAB file of version 7.3 (HDF5), which is not supported: save it with -v7, or as .npz."
        )
    try:
        found = dict(_variables(data))
    except (ValueError, struct.error, zlib.error) as error:
        raise DamagedFileError(f"{where} is not a valid MATLAB file: {error}.") from None
    for name in ("X", label):
        if found.get(name) is None:
            what = "as an array of real numbers" if name in found else f"but contains {', '.join(found) or 'nothing'}"
            raise DamagedFileError(f"{where} must contain the variable {name}, {what}.")
    return as_content(found["X"], found[label], where)


def _variables(data: bytes) -> Iterator[tuple[str, Array | None]]:
    """Yield the name and value of each variable; None for anything but an array of real numbers."""
    endian = _ENDIANS.get(data[_HEADER_BYTES - 2 : _HEADER_BYTES])
    if endian is None:
        raise ValueError("it has no header of version 5")
    n_left = MAX_BYTES
    for element in _elements(memoryview(data)[_HEADER_BYTES:], endian):
        variable: _Element | None = element
        if element.kind == _COMPRESSED:
            inflated = _inflate(element.data, n_left)
            n_left -= len(inflated)
            variable = next(_elements(inflated, endian), None)  # a compressed element contains one variable
        if variable is not None and variable.kind == _MATRIX:
            yield _variable(variable.data, endian)


def _elements(data: memoryview, endian: str) -> Iterator[_Element]:
    """Yield the elements; each has a kind, a number of bytes and its data, and a short one takes 8 bytes in total."""
    position = 0
    while position + 8 <= len(data):
        kind, n_bytes = struct.unpack_from(f"{endian}2I", data, position)
        start = position + 8
        if kind >> 16:
            kind, n_bytes, start = kind & 0xFFFF, kind >> 16, position + 4
        if start + n_bytes > len(data):
            raise ValueError(f"an element of {n_bytes} bytes extends beyond the end of the file")
        yield _Element(kind, data[start : start + n_bytes])
        n_used = start + n_bytes - position
        position += n_used if kind == _COMPRESSED else n_used + -n_used % 8


def _inflate(data: memoryview, max_bytes: int) -> memoryview:
    inflater = zlib.decompressobj()
    inflated = inflater.decompress(data, max_bytes + 1)  # a limit of 0 would mean no limit
    if len(inflated) > max_bytes:
        raise ValueError(f"it must expand to at most {MAX_BYTES} bytes, but expands to more")
    if not inflater.eof:
        raise ValueError("a compressed element is truncated")
    return memoryview(inflated)


def _variable(data: memoryview, endian: str) -> tuple[str, Array | None]:
    parts = list(islice(_elements(data, endian), 4))  # a cell array or a structure may have more
    if len(parts) < 3:
        raise ValueError("a variable has no name")
    flags, dimensions, name = (part.data for part in parts[:3])
    (array_flags,) = struct.unpack_from(f"{endian}I", flags)
    is_real = array_flags & 0xFF in _NUMERIC_CLASSES and not array_flags & _COMPLEX
    shape = np.frombuffer(dimensions, dtype=f"{endian}i4")
    return bytes(name).decode("latin-1"), _table(parts[3], shape, endian) if is_real and len(parts) > 3 else None


def _table(part: _Element, shape: Array, endian: str) -> Array:
    """Return the numbers, which are stored column by column, and often in a narrower type than the variable's."""
    if part.kind not in _NUMBERS:
        raise ValueError(f"numbers cannot be of kind {part.kind}")
    numbers = np.frombuffer(part.data, dtype=endian + _NUMBERS[part.kind])
    if numbers.size * 8 > MAX_BYTES:
        raise ValueError(f"it must expand to at most {MAX_BYTES} bytes, but {numbers.size} numbers need 8 bytes each")
    if (shape < 0).any() or numbers.size != np.prod(shape, dtype=np.float64):
        raise ValueError(f"{numbers.size} numbers do not fill the shape {tuple(map(int, shape))}")
    return numbers.reshape(shape, order="F")
