"""Trees in model files of versions 1 and 2: all arrays of the node table."""

from typing import NamedTuple

import numpy as np

from imondrian.engine.compiled_invariants import NONE, first_broken_tree
from imondrian.engine.invariants import broken_invariants
from imondrian.engine.jit import Array
from imondrian.engine.nodes import FIELDS, Trees, shape_of, table_bytes
from imondrian.models.member_arrays import Layout

# columns whose names in files differ from those in memory
_COLUMN_NAMES = {"hash_key": "lot", "typical_log_size": "level"}
# `rows` is left out: it is empty unless trees share their points, which they do only in memory, not in files
_STORED = {name: field for name, field in FIELDS.items() if name != "rows"}


class TableSizes(NamedTuple):
    """The sizes of a node table."""

    n_trees: int
    n_slots: int
    n_coordinates: int
    n_categorical: int

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return table_bytes(*self)


def array_name(field: str, column: str | None) -> str:
    """Return the name of an array, or of a column of records, in a file."""
    return field if column is None else f"{field}.{_COLUMN_NAMES.get(column, column)}"


def pack(trees: Trees) -> dict[str, Array]:
    """Return the arrays to be written, by name."""
    arrays = {}
    for field in _STORED:
        array = getattr(trees, field)
        for column in array.dtype.names or (None,):
            arrays[array_name(field, column)] = array if column is None else np.ascontiguousarray(array[column])
    return arrays


def layouts(sizes: TableSizes) -> dict[str, Layout]:
    """Return the layouts of the arrays that `pack` returns, by name."""
    found: dict[str, Layout] = {}
    for name, field in _STORED.items():
        shape = shape_of(field, *sizes)
        for column in field.dtype.names or (None,):
            found[array_name(name, column)] = shape, field.dtype if column is None else field.dtype[column]
    return found


def unpack(arrays: dict[str, Array], sizes: TableSizes) -> Trees:
    """Return the trees; raise ValueError if a tree is damaged."""
    trees = Trees(**{name: _field(arrays, name, sizes) for name in _STORED})
    t = first_broken_tree(trees)
    if t != NONE:
        raise ValueError(f"tree {t} is damaged: {', '.join(broken_invariants(trees, t)[:1])}.")
    return trees


def _field(arrays: dict[str, Array], name: str, sizes: TableSizes) -> Array:
    """Return one array of the node table; a record array is assembled from its columns."""
    dtype = FIELDS[name].dtype
    if dtype.names is None:
        return arrays[name].copy()
    records = np.zeros(shape_of(FIELDS[name], *sizes), dtype)
    for column in dtype.names:
        records[column] = arrays[array_name(name, column)]
    return records
