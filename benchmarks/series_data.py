"""The labelled time series in the folder named by IMONDRIAN_DATA: those of NAB and SKAB."""

import csv
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Series(NamedTuple):
    """A series with labelled windows."""

    name: str  # such as "realTraffic/speed_6005"
    times: list[str]
    values: np.ndarray  # one value per row, or a row of several
    windows: list[tuple[int, int]]  # the first and the last row of each window

    @property
    def is_in_window(self) -> np.ndarray:
        """Which rows lie in a window."""
        inside = np.zeros(len(self.values), bool)
        for first, last in self.windows:
            inside[first : last + 1] = True
        return inside


def nab_series() -> Iterator[Series]:
    """Yield the series of NAB."""
    folder = Path(os.environ["IMONDRIAN_DATA"]) / "series" / "nab"
    labels = json.loads((folder / "windows.json").read_text())
    for path in sorted(folder.glob("*/*.csv.gz")):
        with gzip.open(path, "rt") as file:
            rows = list(csv.DictReader(file))
        times = [row["timestamp"] for row in rows]
        name = f"{path.parent.name}/{path.name.removesuffix('.csv.gz')}"
        windows = [(times.index(_second(first)), times.index(_second(last))) for first, last in labels[name]]
        yield Series(name, times, np.array([float(row["value"]) for row in rows]), windows)


def skab_series(folder: str = "valve*") -> Iterator[Series]:
    """Yield the series of SKAB, which have 8 values per row: those with anomalies, or those in "anomaly-free"."""
    root = Path(os.environ["IMONDRIAN_DATA"]) / "series" / "skab"
    for path in sorted(root.glob(f"{folder}/*.csv.gz"), key=lambda path: (path.parent.name, len(path.name), path.name)):
        with gzip.open(path, "rt") as file:
            rows = list(csv.DictReader(file))
        sensors = [name for name in rows[0] if name not in ("datetime", "label")]
        values = np.array([[float(row[name]) for name in sensors] for row in rows])
        windows = _runs(np.array([float(row["label"]) > 0.0 for row in rows]))
        name = f"{path.parent.name}/{path.name.removesuffix('.csv.gz')}"
        yield Series(name, [row["datetime"] for row in rows], values, windows)


def _runs(is_inside: np.ndarray) -> list[tuple[int, int]]:
    """Return the first and the last row of each run of rows that are inside."""
    edges = np.flatnonzero(np.diff(is_inside, prepend=False, append=False))
    return [(int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)]


def _second(time: str) -> str:
    """Return a time without its fraction of a second."""
    return time.split(".", maxsplit=1)[0]
