"""Arrays in model files: plain .npy members of a zip, read with the shape and the type that they must have."""

import io
import math
import warnings
import zipfile
from functools import lru_cache
from typing import Any

import numpy as np

from imondrian.base import sealed_zip
from imondrian.engine.jit import Array
from imondrian.forest.samplers.sampler import ANY

Layout = tuple[tuple[int, ...], np.dtype[Any] | None]  # shape (ANY: any length) and type (None: one of INDEX_TYPES)
_LENGTH_END = 10  # a member begins with 10 bytes: magic, version and, in the last 2, the length of the header
_USUAL_HEADER = 256  # bytes; longer headers are not cached
INDEX_TYPES = tuple(np.dtype(f"u{n_bytes}") for n_bytes in (1, 2, 4, 8))


def member_name(name: str) -> str:
    """Return the name of the member that contains an array."""
    return f"{name}.npy"


def write_array(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    """Add an array to an archive."""
    with sealed_zip.create_member(archive, member_name(name)) as member:
        np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_array(members: sealed_zip.Members, name: str, layout: Layout) -> Array:
    """Return a read-only array; raise ValueError unless it has exactly this layout."""
    name, (shape, dtype) = member_name(name), layout
    content = members.content(name)
    n_header = _LENGTH_END + int.from_bytes(content[_LENGTH_END - 2 : _LENGTH_END], "little")
    header = bytes(content[:n_header])
    try:
        parse = _parsed if n_header <= _USUAL_HEADER else _parsed.__wrapped__
        found_shape, is_fortran, found_dtype = parse(header)
    except Exception as error:  # noqa: BLE001 (numpy evaluates the header as Python literals)
        raise ValueError(f"{name} has no readable header: {error}.") from None
    has_shape = len(found_shape) == len(shape) and all(
        size in (found, ANY) for size, found in zip(shape, found_shape, strict=True)
    )
    if not has_shape or found_dtype not in (INDEX_TYPES if dtype is None else (dtype,)) or is_fortran:
        expected = "unsigned integers" if dtype is None else dtype
        raise ValueError(f"{name} is {found_dtype} of shape {found_shape}, but must be {expected} of shape {shape}.")
    values, n_bytes = content[n_header:], math.prod(found_shape) * found_dtype.itemsize
    if len(values) != n_bytes:
        raise ValueError(f"{name} holds {len(values)} bytes, but must hold {n_bytes}.")
    return np.frombuffer(values, found_dtype).reshape(found_shape)


@lru_cache(maxsize=256)  # parsing takes longer than reading a small array
def _parsed(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type."""
    start = io.BytesIO(header)
    version = np.lib.format.read_magic(start)
    if version != (1, 0):
        raise ValueError(f"its format is {version}, but must be (1, 0)")
    with warnings.catch_warnings(action="error"):
        return np.lib.format.read_array_header_1_0(start)


def narrowest(array: Array) -> Array:
    """Return non-negative integers in the smallest type of INDEX_TYPES that fits."""
    largest = array.max(initial=0)
    return array.astype(next(dtype for dtype in INDEX_TYPES if largest < 256**dtype.itemsize))


def smallest_size(layout: Layout) -> int:
    """Return the smallest number of bytes that an array of a layout can have."""
    shape, dtype = layout
    return 0 if ANY in shape else math.prod(shape) * (1 if dtype is None else dtype.itemsize)
