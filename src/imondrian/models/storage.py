"""Model files (.imf): a zip of plain .npy arrays and a JSON header, sealed with a digest; never a pickle.

Members are not compressed, so that no array can be longer than the file itself. The digest of all other bytes is the
comment of the zip, at the very end of the file. Loading checks everything before a kernel uses it.
"""

import errno
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from imondrian.base import sealed_zip
from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.base.files import atomic_write
from imondrian.engine.compiled_invariants import NONE, first_broken_tree
from imondrian.engine.invariants import broken_invariants
from imondrian.engine.jit import Array
from imondrian.engine.nodes import FIELDS, MAX_POINTS, Trees, shape_of, table_bytes
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.forest_state import Snapshot
from imondrian.forest.inputs import as_count
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Sampler, new_sampler
from imondrian.forest.samplers.sampler import ANY
from imondrian.forest.scales import are_valid_moments

FORMAT, VERSION, READABLE = "imondrian forest", 2, (1, 2)  # version 1 has no categorical features
_HEADER = "header.json"
_HEADER_KEYS = {"format", "version", "parameters", "n_features", "n_slots", "notes"}
_MAX_HEADER_BYTES = 2**24
_MAX_CONTAINERS = 2**17  # lists or objects in a header: an empty JSON list takes 20 times its length in memory
_MAX_MESSAGE = 500  # length of an error message about a damaged file
_TOO_MUCH_DATA = "the header describes more data than the file contains."
_COLUMN_NAMES = {"hash_key": "lot"}  # columns whose names in files differ from those in memory


def save(forest: Snapshot, path: str | os.PathLike[str], notes: dict[str, Any] | None = None) -> None:
    """Write a forest to a file, with notes (JSON values) of the object that owns the forest.

    The file is written next to the target and renamed when complete, so that an interrupted save leaves the old file
    intact.
    """
    with atomic_write(path) as file:
        write(forest, file, notes)


def write(forest: Snapshot, file: IO[bytes], notes: dict[str, Any] | None = None) -> None:
    """Write a forest and notes to an open, empty file."""
    header, arrays = _pack(forest, notes or {})
    text = json.dumps(header).encode()
    _check_header_length(text)
    with sealed_zip.create(file) as archive:
        with sealed_zip.create_member(archive, _HEADER) as member:
            member.write(text)
        for name, array in arrays.items():
            with sealed_zip.create_member(archive, name) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def load(path: str | os.PathLike[str]) -> tuple[MondrianForest, dict[str, Any]]:
    """Read a forest and its notes from a file that `save` has written.

    Raises
    ------
    DamagedFileError
        If the file is truncated, altered or not a model file.
    """
    with Path(path).open("rb") as file:
        return read(file, path)


def read(file: IO[bytes], name: str | os.PathLike[str]) -> tuple[MondrianForest, dict[str, Any]]:
    """Read what `write` has written; the name is used in error messages."""
    with damaged_file_errors(name), sealed_zip.open_verified(file) as archive:
        return _unpack(archive, file.seek(0, os.SEEK_END))


def read_header(file: IO[bytes], name: str | os.PathLike[str], max_bytes: int = _MAX_HEADER_BYTES) -> dict[str, Any]:
    """Read the header alone, up to max_bytes, without the arrays and without checking the digest."""
    with damaged_file_errors(name), sealed_zip.open_unverified(file) as archive:
        n_bytes = archive.getinfo(_HEADER).file_size
        if n_bytes > max_bytes:
            raise ValueError(f"the header has {n_bytes} bytes, but may have at most {max_bytes}.")
        return _read_header(archive)


@contextmanager
def damaged_file_errors(name: str | os.PathLike[str]) -> Iterator[None]:
    """Convert any error that a hostile file can cause in zipfile, json and numpy to DamagedFileError."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: an impossible position in the file; other errors come from the disk
            raise
        raise _damaged(name, error) from None
    except MemoryError:
        raise _damaged(name, "loading it would need more memory than is available.") from None
    except (zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise _damaged(name, f"{error}.") from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, SyntaxError) as error:
        raise _damaged(name, error) from None


def _damaged(name: str | os.PathLike[str], reason: object) -> DamagedFileError:
    """Return a DamagedFileError with a message of one line and bounded length, whatever the file contains."""
    text = " ".join(str(reason)[:_MAX_MESSAGE].split())
    return DamagedFileError(f"{os.fspath(name)}: {text}")


# -- content ----------------------------------------------------------------------------------------------------


def _pack(forest: Snapshot, notes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the arrays of a file."""
    parameters = {**forest.parameters, "categorical": list(forest.parameters["categorical"])}
    if isinstance(parameters["scale"], np.ndarray):
        parameters["scale"] = parameters["scale"].tolist()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "parameters": parameters,
        "n_features": forest.n_features,
        "n_slots": forest.trees.points.shape[1],
        "notes": notes,
    }
    arrays = {}
    for field, array in zip(FIELDS, forest.trees, strict=True):
        for column in array.dtype.names or (None,):
            arrays[_member_name(field, column)] = array if column is None else np.ascontiguousarray(array[column])
    return header, arrays | {_member_name(name, None): array for name, array in forest.arrays.items()}


def _member_name(field: str, column: str | None) -> str:
    return f"{field}.npy" if column is None else f"{field}.{_COLUMN_NAMES.get(column, column)}.npy"


def _unpack(archive: zipfile.ZipFile, n_bytes: int) -> tuple[MondrianForest, dict[str, Any]]:
    header = _read_header(archive)
    n_trees = as_count(header["parameters"].get("n_trees"), "n_trees", 1, MAX_POINTS)
    n_slots = as_count(header["n_slots"], "n_slots", 0, MAX_POINTS)
    n_features = as_count(header["n_features"], "n_features", 1, MAX_POINTS)
    if n_features > n_bytes:  # each number has moments, and each categorical feature is listed in the header
        raise ValueError(_TOO_MUCH_DATA)
    forest = MondrianForest(**header["parameters"])
    layout = FeatureLayout.checked(n_features, forest.categorical)
    sizes = (n_trees, n_slots, layout.n_coordinates, layout.n_categorical)
    shapes = {name: shape_of(field, *sizes) for name, field in FIELDS.items()}
    sampler = new_sampler(forest.max_samples, forest.window, layout.n_categorical)
    layouts = {"moments": ((3, layout.n_numbers), np.dtype(np.float64)), **sampler.layout(layout.n_coordinates)}
    other_bytes = sum(math.prod(shape) * dtype.itemsize for shape, dtype in layouts.values() if ANY not in shape)
    if table_bytes(*sizes) + other_bytes > n_bytes:
        raise ValueError(_TOO_MUCH_DATA)
    names = [_member_name(name, column) for name, field in FIELDS.items() for column in field.dtype.names or (None,)]
    if sorted(archive.namelist()) != sorted([_HEADER, *names, *(_member_name(name, None) for name in layouts)]):
        raise ValueError(f"the members are not those of a model file: {archive.namelist()}.")
    trees = Trees(*(_read_field(archive, name, shapes[name]) for name in FIELDS))
    arrays = {name: _read_array(archive, _member_name(name, None), *layout) for name, layout in layouts.items()}
    sampler.restore(arrays)
    _check_forest(forest, sampler, trees, arrays["moments"])
    return MondrianForest.from_state(header["parameters"], trees, arrays), header["notes"]


def _read_header(archive: zipfile.ZipFile) -> dict[str, Any]:
    with sealed_zip.open_member(archive, _HEADER) as member:
        text = member.read(_MAX_HEADER_BYTES + 1)
    _check_header_length(text)
    header = json.loads(text.decode())  # given bytes, json would also accept UTF-16 and UTF-32
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError("this is not a forest of imondrian.")
    if header.get("version") not in READABLE:
        versions = " and ".join(map(str, READABLE))
        raise ValueError(f"its version is {header.get('version')!r:.50}; this library reads versions {versions}.")
    if set(header) != _HEADER_KEYS or not (
        isinstance(header["parameters"], dict) and isinstance(header["notes"], dict)
    ):
        raise ValueError(f"the header's entries are not those of a model file: {sorted(header)}.")
    return header


def _check_header_length(text: bytes) -> None:
    """Raise InvalidInputError if reading the header would need too much memory; writing has the same limits."""
    if len(text) > _MAX_HEADER_BYTES:
        raise InvalidInputError(
            f"The header of a model file can have at most {_MAX_HEADER_BYTES} bytes, but would have {len(text)}."
        )
    syntax = _outside_strings(text)
    if syntax.count(b"[") + syntax.count(b"{") > _MAX_CONTAINERS or syntax.count(b":") > _MAX_CONTAINERS:
        raise InvalidInputError(
            f"The header of a model file can have at most {_MAX_CONTAINERS} lists, objects or keys."
        )


def _outside_strings(text: bytes) -> bytes:
    """Return the part of a JSON text in UTF-8 that is outside strings, in linear time and memory.

    After an error in the syntax the result may be too short, but no text is parsed beyond its first error.
    """
    without_escapes = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    characters = np.frombuffer(without_escapes, np.uint8)
    is_inside = np.logical_xor.accumulate(characters == ord('"'))
    return characters[~is_inside].tobytes()


def _read_field(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Array:
    """Read one array of the node table; a record array is read column by column."""
    dtype = FIELDS[name].dtype
    if dtype.names is None:
        return _read_array(archive, _member_name(name, None), shape, dtype)
    records = np.zeros(shape, dtype)
    for column in dtype.names:
        records[column] = _read_array(archive, _member_name(name, column), shape, dtype[column])
    return records


def _read_array(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Read an array; raise ValueError unless it has exactly this shape (ANY: any length) and type."""
    with sealed_zip.open_member(archive, name) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is not an array of format 1.0.")
        found_shape, is_fortran, found_dtype = _read_array_header(member, name)
        is_expected = len(found_shape) == len(shape) and all(
            size in (found, ANY) for size, found in zip(shape, found_shape, strict=True)
        )
        if not is_expected or found_dtype != dtype or is_fortran:
            raise ValueError(f"{name} is {found_dtype} of shape {found_shape}, but must be {dtype} of shape {shape}.")
        content = member.read()
        n_bytes = math.prod(found_shape) * dtype.itemsize
        if len(content) != n_bytes:
            raise ValueError(f"{name} holds {len(content)} bytes, but must hold {n_bytes}.")
        return np.frombuffer(content, dtype).reshape(found_shape).copy()


def _read_array_header(member: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type. numpy evaluates the header as Python literals, which can fail in many ways."""
    try:
        with warnings.catch_warnings(action="error"):
            return np.lib.format.read_array_header_1_0(member)
    except Exception as error:  # noqa: BLE001
        raise ValueError(f"{name} has no readable header: {error}.") from None


def _check_forest(forest: MondrianForest, sampler: Sampler, trees: Trees, moments: Array) -> None:
    """Check the moments, the state of the sampler, and every tree."""
    scale_counts_all = isinstance(forest.scale, str) and forest.window is None
    if not are_valid_moments(moments, trees.heads["n_points"].max() if scale_counts_all else 0):
        raise ValueError("moments.npy is damaged: no points can have these moments.")
    if trees.points.shape[1] > sampler.limit:
        raise ValueError(f"a tree has {trees.points.shape[1]} slots, but can hold at most {sampler.limit} points.")
    for problem in sampler.problems():
        raise ValueError(f"{problem}.")
    t = first_broken_tree(trees)
    if t != NONE:
        raise ValueError(f"tree {t} is damaged: {', '.join(broken_invariants(trees, t)[:1])}.")
    for problem, is_wrong in sampler.tree_check()(trees):
        if is_wrong.any():
            raise ValueError(f"tree {is_wrong.argmax()} is damaged: {problem}.")
