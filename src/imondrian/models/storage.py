"""Model files (.imf): a zip of plain .npy arrays and a JSON header, sealed with a digest; never a pickle.

Members are not compressed, so that no array can be longer than the file itself. The digest of all other bytes is the
comment of the zip, at the very end of the file. Loading checks everything before a kernel uses it.
"""

import errno
import json
import os
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from imondrian.base import sealed_zip
from imondrian.base.errors import DamagedFileError
from imondrian.base.files import atomic_write
from imondrian.base.json_limits import MAX_JSON_BYTES, check_json_limits
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_POINTS, Trees, resized
from imondrian.forest.feature_layout import FeatureLayout
from imondrian.forest.forest_state import Snapshot
from imondrian.forest.inputs import as_count
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Sampler, new_sampler
from imondrian.forest.scales import are_valid_moments
from imondrian.models import full_trees, packed_trees
from imondrian.models.full_trees import TableSizes
from imondrian.models.member_arrays import member_name, read_array, smallest_size, write_array

FORMAT, VERSION, FULL_VERSION = "imondrian forest", 3, 2
READABLE = (1, 2, 3)  # version 1 has no categorical features
_HEADER = "header.json"
_HEADER_KEYS = {"format", "version", "parameters", "n_features", "n_slots", "notes"}
_HEADER_TITLE = "The header of a model file"
_MAX_MESSAGE = 500  # length of an error message about a damaged file
_TOO_MUCH_DATA = "the header describes more data than the file contains."


class PackedForest(NamedTuple):
    """A forest as it is stored in a file: the entries of the header, without the notes, and the arrays by name."""

    header: dict[str, Any]
    arrays: dict[str, Array]


def save(forest: Snapshot | PackedForest, path: str | os.PathLike[str], notes: dict[str, Any] | None = None) -> None:
    """Write a forest to a file, with notes (JSON values) of the object that owns the forest.

    The file is written next to the target and renamed when complete, so that an interrupted save leaves the old file
    intact.
    """
    with atomic_write(path) as file:
        write(forest, file, notes)


def write(forest: Snapshot | PackedForest, file: IO[bytes], notes: dict[str, Any] | None = None) -> None:
    """Write a forest and notes to an open, empty file."""
    header, arrays = pack(forest) if isinstance(forest, Snapshot) else forest
    text = json.dumps(header | {"notes": notes or {}}).encode()
    check_json_limits(text, _HEADER_TITLE)
    with sealed_zip.create(file) as archive:
        with sealed_zip.create_member(archive, _HEADER) as member:
            member.write(text)
        for name, array in arrays.items():
            write_array(archive, name, array)


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
    with damaged_file_errors(name):
        return _unpack(sealed_zip.read_verified(file), file.seek(0, os.SEEK_END))


def read_header(file: IO[bytes], name: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the header alone, without the arrays and without checking the digest."""
    with damaged_file_errors(name), sealed_zip.open_unverified(file) as archive:
        n_bytes = archive.getinfo(_HEADER).file_size
        if n_bytes > MAX_JSON_BYTES:
            raise ValueError(f"the header has {n_bytes} bytes, but may have at most {MAX_JSON_BYTES}.")
        return _header_of(archive.read(_HEADER))


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


def pack(forest: Snapshot) -> PackedForest:
    """Return a forest as it is stored in a file; the arrays are copies."""
    n_slots = int(forest.trees.heads["n_leaves"].max())
    widths = forest.trees.boxes.shape[3], forest.trees.points.shape[2] - forest.trees.boxes.shape[3]
    arrays, version = packed_trees.pack(forest.trees, n_slots, forest.arrays.get("ring")), VERSION
    sizes = TableSizes(forest.trees.heads.size, n_slots, *widths)
    if sizes.n_bytes > packed_trees.MAX_EXPANSION * sum(array.nbytes for array in arrays.values()):
        # in version 3, the file would be so small compared with its trees that `packed_trees.unpack` would reject it
        arrays, version = full_trees.pack(resized(forest.trees, n_slots)), FULL_VERSION
    others = {name: array.copy() for name, array in forest.arrays.items()}
    return PackedForest(_header(forest, version, n_slots), arrays | others)


def _header(forest: Snapshot, version: int, n_slots: int) -> dict[str, Any]:
    parameters = {**forest.parameters, "categorical": list(forest.parameters["categorical"])}
    if isinstance(parameters["scale"], np.ndarray):
        parameters["scale"] = parameters["scale"].tolist()
    return {
        "format": FORMAT,
        "version": version,
        "parameters": parameters,
        "n_features": forest.n_features,
        "n_slots": n_slots,
    }


def _unpack(members: sealed_zip.Members, n_bytes: int) -> tuple[MondrianForest, dict[str, Any]]:
    header = _header_of(members.content(_HEADER))
    n_trees = as_count(header["parameters"].get("n_trees"), "n_trees", 1, MAX_POINTS)
    n_slots = as_count(header["n_slots"], "n_slots", 0, MAX_POINTS)
    n_features = as_count(header["n_features"], "n_features", 1, MAX_POINTS)
    if n_features > n_bytes:  # each numeric feature has moments, and each categorical feature is listed in the header
        raise ValueError(_TOO_MUCH_DATA)
    forest = MondrianForest(**header["parameters"])
    layout = FeatureLayout.checked(n_features, forest.categorical)
    sampler = new_sampler(forest.max_samples, forest.window, layout.n_categorical)
    sizes = TableSizes(n_trees, n_slots, layout.n_coordinates, layout.n_categorical)
    others = {"moments": ((3, layout.n_numbers), np.dtype(np.float64)), **sampler.layout(layout.n_coordinates)}
    is_packed = header["version"] > FULL_VERSION
    layouts = (packed_trees if is_packed else full_trees).layouts(sizes) | others
    if sum(map(smallest_size, layouts.values())) > n_bytes:
        raise ValueError(_TOO_MUCH_DATA)
    if sorted(members.names) != sorted([_HEADER, *map(member_name, layouts)]):
        raise ValueError(f"the members are not those of a model file: {members.names}.")
    arrays = {name: read_array(members, name, layout) for name, layout in layouts.items()}
    state = {name: arrays[name].copy() for name in others}
    sampler.restore(state)
    if n_slots > sampler.limit:  # the limit of a window depends on its state
        raise ValueError(f"a tree has {n_slots} slots, but can hold at most {sampler.limit} points.")
    for problem in sampler.problems():
        raise ValueError(f"{problem}.")
    if is_packed:
        trees = packed_trees.unpack(arrays, sizes, state.get("ring"), n_bytes)
    else:
        trees = full_trees.unpack(arrays, sizes)
    _check_forest(forest, sampler, trees, state["moments"])
    return MondrianForest.from_state(header["parameters"], trees, state), header["notes"]


def _header_of(content: bytes | memoryview) -> dict[str, Any]:
    text = bytes(content[: MAX_JSON_BYTES + 1])
    check_json_limits(text, _HEADER_TITLE)
    header = json.loads(text.decode())  # given bytes, json would also accept UTF-16 and UTF-32
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError("this is not an imondrian forest.")
    if header.get("version") not in READABLE:
        versions = f"{READABLE[0]} to {READABLE[-1]}"
        raise ValueError(f"its version is {header.get('version')!r:.50}; this library reads versions {versions}.")
    if set(header) != _HEADER_KEYS or not (
        isinstance(header["parameters"], dict) and isinstance(header["notes"], dict)
    ):
        raise ValueError(f"the header's entries are not those of a model file: {sorted(header)}.")
    return header


def _check_forest(forest: MondrianForest, sampler: Sampler, trees: Trees, moments: Array) -> None:
    """Check the moments, and the trees against the state of the sampler."""
    moments_cover_all_points = isinstance(forest.scale, str) and forest.window is None
    if not are_valid_moments(moments, trees.heads["n_points"].max() if moments_cover_all_points else 0):
        raise ValueError("moments.npy is damaged: no points can have these moments.")
    for problem, is_wrong in sampler.tree_check()(trees):
        if is_wrong.any():
            raise ValueError(f"tree {is_wrong.argmax()} is damaged: {problem}.")
