"""Model files (.imf): a zip of plain .npy arrays and a JSON header, sealed by a digest; never a pickle.

Members are stored, not compressed, so that no array can be longer than the file itself. The digest of all
other bytes is the comment of the zip, at the very end. Loading checks everything before a kernel walks it.
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

from imondrian import sealed_zip
from imondrian.engine.invariants import broken_invariants
from imondrian.engine.jit import Array
from imondrian.engine.nodes import FIELDS, MAX_POINTS, Trees, shape_of
from imondrian.engine.soundness import NONE, first_unsound
from imondrian.errors import DamagedFileError, InvalidInputError
from imondrian.files import written_whole
from imondrian.forest import MondrianForest, Snapshot
from imondrian.inputs import as_count
from imondrian.samplers import Sampler, new_sampler
from imondrian.scales import are_possible

FORMAT, VERSION = "imondrian forest", 1
_HEADER = "header.json"
_HEADER_KEYS = {"format", "version", "parameters", "n_features", "n_slots", "notes"}
_MAX_HEADER_BYTES = 2**24
_MAX_CONTAINERS = 2**17  # in a header: an empty list of JSON takes 20 times its length in memory
_MAX_MESSAGE = 500  # characters of what is wrong with a file


def save(forest: Snapshot, path: str | os.PathLike[str], notes: dict[str, Any] | None = None) -> None:
    """Write the forest to a file, with notes (anything JSON can hold) for whoever stands above it.

    It is written beside the file and renamed when complete, so that an interrupted save leaves an old file intact.
    """
    with written_whole(path) as file:
        write(forest, file, notes)


def write(forest: Snapshot, file: IO[bytes], notes: dict[str, Any] | None = None) -> None:
    """Write the forest and notes to an open, empty file."""
    header, arrays = _packed(forest, notes or {})
    text = json.dumps(header).encode()
    _check_header_length(text)
    with sealed_zip.writing(file) as archive:
        with sealed_zip.new_member(archive, _HEADER) as member:
            member.write(text)
        for name, array in arrays.items():
            with sealed_zip.new_member(archive, name) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def load(path: str | os.PathLike[str]) -> tuple[MondrianForest, dict[str, Any]]:
    """Read a forest that `save` has written, and the notes; a file that is cut or altered is a DamagedFileError."""
    with Path(path).open("rb") as file:
        return read(file, path)


def read(file: IO[bytes], name: str | os.PathLike[str]) -> tuple[MondrianForest, dict[str, Any]]:
    """Read what `write` has written; the name is for what there is to complain about."""
    with complaints_about(name), sealed_zip.reading(file) as archive:
        return _unpacked(archive, file.seek(0, os.SEEK_END))


def read_header(file: IO[bytes], name: str | os.PathLike[str], max_bytes: int = _MAX_HEADER_BYTES) -> dict[str, Any]:
    """Read the header alone, if it is not longer than that, without the arrays and without checking the digest."""
    with complaints_about(name), sealed_zip.reading_unsealed(file) as archive:
        n_bytes = archive.getinfo(_HEADER).file_size
        if n_bytes > max_bytes:
            raise ValueError(f"the header has {n_bytes} bytes, but may have {max_bytes} at most.")
        return _read_header(archive)


@contextmanager
def complaints_about(name: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever a hostile file can provoke in zipfile, json and numpy into the one documented error."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place in the file that cannot be; anything else is the disk's fault
            raise
        raise _damaged(name, error) from None
    except MemoryError:
        raise _damaged(name, "what it describes takes more memory than there is.") from None
    except (zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise _damaged(name, f"{error}.") from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, SyntaxError) as error:
        raise _damaged(name, error) from None


def _damaged(name: str | os.PathLike[str], what: object) -> DamagedFileError:
    """Make the one documented error, in one line of bounded length whatever the file holds."""
    text = " ".join(str(what)[:_MAX_MESSAGE].split())
    return DamagedFileError(f"{os.fspath(name)}: {text}")


# -- what is in it ----------------------------------------------------------------------------------------------


def _packed(forest: Snapshot, notes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header and the arrays of a file."""
    parameters = dict(forest.parameters)
    if isinstance(parameters["scale"], np.ndarray):
        parameters["scale"] = parameters["scale"].tolist()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "parameters": parameters,
        "n_features": forest.trees.points.shape[2],
        "n_slots": forest.trees.points.shape[1],
        "notes": notes,
    }
    arrays = {}
    for field, array in zip(FIELDS, forest.trees, strict=True):
        for column in array.dtype.names or (None,):
            arrays[_member_name(field, column)] = array if column is None else np.ascontiguousarray(array[column])
    return header, arrays | {_member_name(name, None): array for name, array in forest.arrays.items()}


def _member_name(field: str, column: str | None) -> str:
    return f"{field}.npy" if column is None else f"{field}.{column}.npy"


def _unpacked(archive: zipfile.ZipFile, n_bytes: int) -> tuple[MondrianForest, dict[str, Any]]:
    header = _read_header(archive)
    n_trees = as_count(header["parameters"].get("n_trees"), "n_trees", 1, MAX_POINTS)
    n_slots = as_count(header["n_slots"], "n_slots", 0, MAX_POINTS)
    n_features = as_count(header["n_features"], "n_features", 1, MAX_POINTS)
    shapes = {name: shape_of(field, n_trees, n_slots, n_features) for name, field in FIELDS.items()}
    forest = MondrianForest(**header["parameters"])
    sampler = new_sampler(forest.max_samples, forest.window)
    layouts = {"moments": ((3, n_features), np.dtype(np.float64)), **sampler.layout(n_features)}
    sizes = [math.prod(shapes[name]) * field.dtype.itemsize for name, field in FIELDS.items()]
    if sum(sizes) + sum(math.prod(shape) * dtype.itemsize for shape, dtype in layouts.values()) > n_bytes:
        raise ValueError("the header promises more than the file holds.")
    names = [_member_name(name, column) for name, field in FIELDS.items() for column in field.dtype.names or (None,)]
    if sorted(archive.namelist()) != sorted([_HEADER, *names, *(_member_name(name, None) for name in layouts)]):
        raise ValueError(f"the members are {archive.namelist()}.")
    trees = Trees(*(_read_field(archive, name, shapes[name]) for name in FIELDS))
    beside = {name: _read_array(archive, _member_name(name, None), *layout) for name, layout in layouts.items()}
    sampler.restore(beside)
    _check_forest(forest, sampler, trees, beside["moments"])
    return MondrianForest.from_state(header["parameters"], trees, beside), header["notes"]


def _read_header(archive: zipfile.ZipFile) -> dict[str, Any]:
    with sealed_zip.member(archive, _HEADER) as member:
        text = member.read(_MAX_HEADER_BYTES + 1)
    _check_header_length(text)
    header = json.loads(text)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError("this is not a forest of imondrian.")
    if header.get("version") != VERSION:
        raise ValueError(f"its version is {header.get('version')!r:.50}; this library reads version {VERSION}.")
    if set(header) != _HEADER_KEYS or not (
        isinstance(header["parameters"], dict) and isinstance(header["notes"], dict)
    ):
        raise ValueError(f"the header's entries are {sorted(header)}.")
    return header


def _check_header_length(text: bytes) -> None:
    """Refuse a header that takes much memory when it is read: what is written is held to the same bounds."""
    if len(text) > _MAX_HEADER_BYTES:
        raise InvalidInputError(f"The header of a model file can have {_MAX_HEADER_BYTES} bytes at most.")
    if text.count(b"[") + text.count(b"{") > _MAX_CONTAINERS or text.count(b'":') > _MAX_CONTAINERS:
        raise InvalidInputError(
            f"The header of a model file can have {_MAX_CONTAINERS} lists, objects or keys at most."
        )


def _read_field(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Array:
    """Read one array of the table, a record column by column."""
    dtype = FIELDS[name].dtype
    if dtype.names is None:
        return _read_array(archive, _member_name(name, None), shape, dtype)
    records = np.zeros(shape, dtype)
    for column in dtype.names:
        records[column] = _read_array(archive, _member_name(name, column), shape, dtype[column])
    return records


def _read_array(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Read an array of exactly this shape and type."""
    with sealed_zip.member(archive, name) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is not an array of format 1.0.")
        found_shape, is_fortran, found_dtype = _read_array_header(member, name)
        if found_shape != shape or found_dtype != dtype or is_fortran:
            raise ValueError(f"{name} is {found_dtype} of shape {found_shape}, but must be {dtype} of shape {shape}.")
        content = member.read()
        n_bytes = math.prod(shape) * dtype.itemsize
        if len(content) != n_bytes:
            raise ValueError(f"{name} holds {len(content)} bytes, but must hold {n_bytes}.")
        return np.frombuffer(content, dtype).reshape(shape).copy()


def _read_array_header(member: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type; numpy evaluates the header as Python literals, which can fail in many ways."""
    try:
        with warnings.catch_warnings(action="error"):
            return np.lib.format.read_array_header_1_0(member)
    except Exception as error:  # noqa: BLE001
        raise ValueError(f"{name} has no readable header: {error}.") from None


def _check_forest(forest: MondrianForest, sampler: Sampler, trees: Trees, moments: Array) -> None:
    """Check the moments, what is remembered, and every tree."""
    follows_all = isinstance(forest.scale, str) and forest.window is None
    if not are_possible(moments, trees.heads["n_points"].max() if follows_all else 0):
        raise ValueError("moments.npy is damaged: no points have such moments.")
    if trees.points.shape[1] > sampler.limit:
        raise ValueError(f"a tree has {trees.points.shape[1]} slots, but can hold no more than {sampler.limit} points.")
    for complaint in sampler.complaints():
        raise ValueError(f"{complaint}.")
    t = first_unsound(trees)
    if t != NONE:
        raise ValueError(f"tree {t} is damaged: {', '.join(broken_invariants(trees, t)[:1])}.")
    for complaint, is_wrong in sampler.check()(trees):
        if is_wrong.any():
            raise ValueError(f"tree {is_wrong.argmax()} is damaged: {complaint}.")
