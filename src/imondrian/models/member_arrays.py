"""Arrays in model files: plain .npy members of a zip, read with the shape and the type that they must have."""

import io
import math
import warnings
import zipfile
from typing import IO, Any

import numpy as np

from imondrian.base import sealed_zip
from imondrian.engine.jit import Array
from imondrian.forest.samplers.sampler import ANY

Layout = tuple[tuple[int, ...], np.dtype[Any] | None]  # shape (ANY: any length) and type (None: see INDICES)
_LONGEST_HEADER = 2**16 + 16
INDICES = tuple(np.dtype(f"u{n_bytes}") for n_bytes in (1, 2, 4, 8))


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
    start = io.BytesIO(content[:_LONGEST_HEADER])
    found_shape, is_fortran, found_dtype = _read_array_header(start, name)
    has_shape = len(found_shape) == len(shape) and all(
        size in (found, ANY) for size, found in zip(shape, found_shape, strict=True)
    )
    if not has_shape or found_dtype not in (INDICES if dtype is None else (dtype,)) or is_fortran:
        expected = "unsigned integers" if dtype is None else dtype
        raise ValueError(f"{name} is {found_dtype} of shape {found_shape}, but must be {expected} of shape {shape}.")
    values, n_bytes = content[start.tell() :], math.prod(found_shape) * found_dtype.itemsize
    if len(values) != n_bytes:
        raise ValueError(f"{name} holds {len(values)} bytes, but must hold {n_bytes}.")
    return np.frombuffer(values, found_dtype).reshape(found_shape)


def _read_array_header(start: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type. numpy evaluates the header as Python literals, which can fail in many ways."""
    try:
        version = np.lib.format.read_magic(start)
        with warnings.catch_warnings(action="error"):
            found = np.lib.format.read_array_header_1_0(start)
    except Exception as error:  # noqa: BLE001
        raise ValueError(f"{name} has no readable header: {error}.") from None
    if version != (1, 0):
        raise ValueError(f"{name} is not an array of format 1.0.")
    return found


def narrowest(array: Array) -> Array:
    """Return non-negative integers in the smallest type of INDICES that fits."""
    largest = array.max(initial=0)
    return array.astype(next(dtype for dtype in INDICES if largest < 256**dtype.itemsize))


def smallest_size(layout: Layout) -> int:
    """Return the smallest number of bytes that an array of a layout can have."""
    shape, dtype = layout
    return 0 if ANY in shape else math.prod(shape) * (1 if dtype is None else dtype.itemsize)
