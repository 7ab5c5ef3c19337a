"""The images of docs/series.md: three series of the Numenta Anomaly Benchmark, drawn by `imondrian plot series`.

python examples/series_pictures.py docs/images

The series are in the folder `series/nab` of the folder IMONDRIAN_DATA; without it, nothing is drawn.
"""

import os
import subprocess
import sys
from pathlib import Path

SERIES = {
    "series-occupancy": "realTraffic/occupancy_t4013.csv.gz",
    "series-latency": "realKnownCause/ec2_request_latency_system_failure.csv.gz",
    "series-temperature": "realKnownCause/machine_temperature_system_failure.csv.gz",
}


def main(folder: Path) -> None:
    """Draw the series, if they are there."""
    source = Path(os.environ.get("IMONDRIAN_DATA", "")) / "series" / "nab"
    if not source.is_dir():
        print("The series are not there: set IMONDRIAN_DATA to redraw the images of docs/series.md.")
        return
    for name, path in SERIES.items():
        series, image = source / path, (folder / f"{name}.png").resolve()
        options = ("--time", "timestamp", "--label", "label", "--width", "8")
        command = [sys.executable, "-m", "imondrian", "plot", "series", series.name, *options, "-o", str(image)]
        subprocess.run(command, cwd=series.parent, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
