"""The labelled time series in the folder named by IMONDRIAN_DATA: those of NAB."""

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
    values: np.ndarray
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


def _second(time: str) -> str:
    """Return a time without its fraction of a second."""
    return time.split(".", maxsplit=1)[0]
