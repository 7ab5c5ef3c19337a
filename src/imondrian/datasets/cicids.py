"""Read the flows of one day of CICIDS 2017 as published (MachineLearningCSV), in blocks, and clean them."""

from collections.abc import Iterator
from typing import IO

import numpy as np
import polars as pl

from imondrian.base.errors import DamagedFileError
from imondrian.datasets.content import Content
from imondrian.datasets.csv_files import read_frame
from imondrian.datasets.sources import Source, open_source
from imondrian.engine.jit import Array

FEATURES = (
    "Flow Duration", "Total Fwd Packets", "Total Backward Packets", "Total Length of Fwd Packets",
    "Total Length of Bwd Packets", "Fwd Packet Length Max", "Fwd Packet Length Min", "Fwd Packet Length Mean",
    "Fwd Packet Length Std", "Bwd Packet Length Max", "Bwd Packet Length Min", "Bwd Packet Length Mean",
    "Bwd Packet Length Std", "Flow Bytes/s", "Flow Packets/s", "Flow IAT Mean", "Flow IAT Std", "Flow IAT Max",
    "Flow IAT Min", "Fwd IAT Total", "Fwd IAT Mean", "Fwd IAT Std", "Fwd IAT Max", "Fwd IAT Min", "Bwd IAT Total",
    "Bwd IAT Mean", "Bwd IAT Std", "Bwd IAT Max", "Bwd IAT Min", "Fwd PSH Flags", "Bwd PSH Flags", "Fwd URG Flags",
    "Bwd URG Flags", "Fwd Header Length", "Bwd Header Length", "Fwd Packets/s", "Bwd Packets/s", "Min Packet Length",
    "Max Packet Length", "Packet Length Mean", "Packet Length Std", "Packet Length Variance", "FIN Flag Count",
    "SYN Flag Count", "RST Flag Count", "PSH Flag Count", "ACK Flag Count", "URG Flag Count", "CWE Flag Count",
    "ECE Flag Count", "Down/Up Ratio", "Average Packet Size", "Avg Fwd Segment Size", "Avg Bwd Segment Size",
    "Fwd Header Length.1", "Fwd Avg Bytes/Bulk", "Fwd Avg Packets/Bulk", "Fwd Avg Bulk Rate", "Bwd Avg Bytes/Bulk",
    "Bwd Avg Packets/Bulk", "Bwd Avg Bulk Rate", "Subflow Fwd Packets", "Subflow Fwd Bytes", "Subflow Bwd Packets",
    "Subflow Bwd Bytes", "Init_Win_bytes_forward", "Init_Win_bytes_backward", "act_data_pkt_fwd",
    "min_seg_size_forward", "Active Mean", "Active Std", "Active Max", "Active Min", "Idle Mean", "Idle Std",
    "Idle Max", "Idle Min",
)  # fmt: skip
PORT, LABEL, NORMAL = "Destination Port", "Label", "BENIGN"
BLOCK_BYTES = 2**24


def read(source: Source, where: str, _label: str) -> Content:
    """Read the 77 features and the labels of a day's flows.

    Like published pipelines: blanks are stripped from names, and the second of two equal names gets the suffix `.1`;
    the port, a category written as a number, is dropped; rows with a missing or infinite value are dropped and
    counted. Every label other than BENIGN is an anomaly. Empty lines and repeated header lines are ignored.
    """
    with open_source(source) as file:
        names = _names_in(file.readline(), where)
        start = file.tell()
        n_lines = sum(block.count(b"\n") for block in iter(lambda: file.read(BLOCK_BYTES), b"")) + 1
        file.seek(start)
        return _collect(_blocks(file, names, where), n_lines, where)


def _names_in(header: bytes, where: str) -> list[str]:
    """Return the names of the columns, which must be those of MachineLearningCSV."""
    text = header.decode("utf-8-sig", errors="replace")
    names: list[str] = []
    for cell in text.rstrip("\r\n").split(","):
        name = cell.strip()
        n_before = sum(earlier == name for earlier in names)
        names.append(f"{name}.{n_before}" if n_before else name)
    missing = [name for name in (*FEATURES, LABEL) if name not in names]
    unknown = [name for name in names if name not in (*FEATURES, LABEL, PORT)]
    if missing or unknown:
        raise DamagedFileError(
            f"{where} must have the columns of CICIDS 2017's MachineLearningCSV; missing: {_listed(missing)}; "
            f"unknown: {_listed(unknown)}."
        )
    return names


def _blocks(file: IO[bytes], names: list[str], where: str) -> Iterator[Content]:
    """Yield the rows in blocks of complete lines, of about BLOCK_BYTES each, to limit memory."""
    line = 2
    while block := file.read(BLOCK_BYTES) + file.readline():
        frame = read_frame(block, where, names)
        yield _rows_of(frame, where, line)
        line += frame.height


def _rows_of(frame: pl.DataFrame, where: str, line: int) -> Content:
    labels = frame[LABEL].str.strip_chars()
    is_row = (~frame.select(pl.all_horizontal(pl.all().is_null())).to_series()) & labels.ne_missing(LABEL)
    points = np.empty((frame.height, len(FEATURES)))
    for j, name in enumerate(FEATURES):
        points[:, j] = _numbers(frame[name], is_row, where, line)
    rows = is_row.to_numpy()
    is_complete = rows & np.isfinite(points).all(axis=1) & (labels.fill_null("") != "").to_numpy()
    is_anomaly = (labels.str.to_uppercase() != NORMAL).fill_null(value=True).to_numpy()
    return Content(
        points[is_complete], is_anomaly[is_complete].astype(np.uint8), FEATURES, int(rows.sum() - is_complete.sum())
    )


def _numbers(column: pl.Series, is_row: pl.Series, where: str, line: int) -> Array:
    """Return the numbers of a column, NaN where missing; raise DamagedFileError for text."""
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() > column.null_count():
        stripped = column.str.strip_chars()
        numbers = stripped.cast(pl.Float64, strict=False)
        is_text = numbers.is_null() & is_row & (stripped.fill_null("") != "")
        if is_text.any():
            i = int(is_text.arg_max() or 0)
            raise DamagedFileError(f"{where}, line {line + i}, column {column.name}: {column[i]!r} is not a number.")
    return numbers.to_numpy()


def _collect(blocks: Iterator[Content], n_lines: int, where: str) -> Content:
    """Copy the blocks into arrays that were allocated for all lines."""
    points, labels = np.empty((n_lines, len(FEATURES))), np.empty(n_lines, dtype=np.uint8)
    n_rows = n_dropped = 0
    for block in blocks:
        n_after = n_rows + len(block.X)
        points[n_rows:n_after], labels[n_rows:n_after] = block.X, block.y
        n_rows, n_dropped = n_after, n_dropped + block.n_dropped
    if n_rows == 0:
        raise DamagedFileError(f"{where} has no complete row ({n_dropped} rows have a missing or infinite value).")
    return Content(points[:n_rows], labels[:n_rows], FEATURES, n_dropped)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more if names else "none"
