"""Read points and labels from CSV text; errors name the cell that is not a number."""

import os

import numpy as np
import polars as pl

from imondrian.base.errors import DamagedFileError
from imondrian.datasets.content import Content, as_content
from imondrian.datasets.sources import Source, open_source
from imondrian.engine.jit import Array

_LABELS = ("y", "label")
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")  # gzip, zlib, zstd


def read(source: Source, where: str, label: str) -> Content:
    """Read a table with labels in one column.

    The argument `label` is the name of the column of labels, in lower case; the case of the header is ignored. If there
    is no such column, the labels are in the column "y" or "label", or else in the last one. The first line is a header
    if any of its cells is not a number.
    """
    with open_source(source) as file:
        data = file.read()
    frame = read_frame(data.removeprefix(b"\xef\xbb\xbf"), where)
    if frame.width < 2:
        raise DamagedFileError(f"{where} must have features and a label, separated by commas, but has one column.")
    names = _names_in(frame)
    rows = frame if names is None else frame.slice(1)
    label_index = _label_column(names, label, frame.width)
    table = _numbers(rows, where, first_line=1 if names is None else 2)
    features = None if names is None else tuple(names[:label_index] + names[label_index + 1 :])
    return as_content(np.delete(table, label_index, axis=1), table[:, label_index], where, features)


def read_frame(data: bytes, where: str | os.PathLike[str], names: list[str] | None = None) -> pl.DataFrame:
    """Return the cells of CSV text unconverted; bytes that are not UTF-8 become replacement characters."""
    if data.startswith(_COMPRESSED):  # Polars would decompress it without a limit
        raise DamagedFileError(f"{where} must be CSV text, but is compressed.")
    try:
        return pl.read_csv(
            data if names is None else ",".join(names).encode() + b"\n" + data,
            has_header=names is not None,
            infer_schema=False,
            encoding="utf8-lossy",
            quote_char='"' if names is None else None,
        )
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise DamagedFileError(f"{where} cannot be read as CSV: {reason}.") from None


def _names_in(frame: pl.DataFrame) -> list[str] | None:
    first = pl.Series([str(cell or "").strip() for cell in frame.row(0)])
    is_numbers = first.cast(pl.Float64, strict=False).null_count() == 0
    return None if is_numbers else first.to_list()


def _label_column(names: list[str] | None, label: str, width: int) -> int:
    known = [name.lower() for name in names or []]
    return next((known.index(name) for name in (label, *_LABELS) if name in known), width - 1)


def _numbers(rows: pl.DataFrame, where: str, first_line: int) -> Array:
    table = np.empty((rows.height, rows.width))
    for j, column in enumerate(rows.iter_columns()):
        numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
        if numbers.null_count():
            i = int(numbers.is_null().arg_max() or 0)
            raise DamagedFileError(f"{where}, line {first_line + i}, column {j + 1}: {column[i]!r} is not a number.")
        table[:, j] = numbers.to_numpy()
    return table
