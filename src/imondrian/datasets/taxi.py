"""Read NAB's series of New York taxi rides per half hour as points of 48 values (one day) each."""

import csv
import io

import numpy as np

from imondrian.base.errors import DamagedFileError
from imondrian.datasets.content import Content, as_content
from imondrian.datasets.sources import Source, open_source

WINDOWS = (  # from NAB's labels/combined_windows.json: a marathon, Thanksgiving, Christmas, New Year, a blizzard
    ("2014-10-30 15:30:00", "2014-11-03 22:30:00"),
    ("2014-11-25 12:00:00", "2014-11-29 19:00:00"),
    ("2014-12-23 11:30:00", "2014-12-27 18:30:00"),
    ("2014-12-29 21:30:00", "2015-01-03 04:30:00"),
    ("2015-01-24 20:30:00", "2015-01-29 03:30:00"),
)
_LENGTH = 48


def read(source: Source, where: str, _label: str) -> Content:
    """Read NAB's nyc_taxi.csv; a point is an anomaly if its last value is in one of NAB's windows."""
    with open_source(source) as file:
        data = file.read()
    try:
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        times, values = [row["timestamp"] for row in rows], np.array([float(row["value"]) for row in rows])
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise DamagedFileError(f"{where} must be a table with the columns timestamp and value: {error!r}.") from None
    if len(values) < _LENGTH:
        raise DamagedFileError(f"{where} must have at least {_LENGTH} rows, but has {len(values)}.")
    is_anomaly = np.array([any(first <= time <= last for first, last in WINDOWS) for time in times])
    points = np.lib.stride_tricks.sliding_window_view(values, _LENGTH)
    return as_content(points, is_anomaly[_LENGTH - 1 :], where)
