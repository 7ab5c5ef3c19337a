"""The demonstration: two tables are written, and the command line finds what is odd in them.

A folder `demo` is made with the data, the scored table, the model and a report with pictures.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.datasets import load_breast_cancer

FOLDER = Path("demo")
MINUTES = 3_000


def main() -> None:
    """Write the data, run the commands and say what has been found."""
    FOLDER.mkdir(exist_ok=True)
    write_tumours(FOLDER / "tumours.csv")
    write_sensor(FOLDER / "sensor.csv")
    tumours = [FOLDER / name for name in ("tumours.csv", "scored.csv", "report.html", "model.imf")]
    run("detect", tumours[0], "-o", tumours[1], "--report", tumours[2], "--save", tumours[3])
    scored = pl.read_csv(tumours[1])
    odd = scored.filter(pl.col("is_anomaly"))
    n_malignant, share = (
        odd.filter(pl.col("diagnosis") == "malignant").height,
        (scored["diagnosis"] == "malignant").mean(),
    )
    print(f"\n{n_malignant} of these {odd.height} are malignant, of all tumours {share:.0%}: nobody had told it.\n")
    run(
        "watch",
        FOLDER / "sensor.csv",
        "--time",
        "time",
        "--threshold",
        "0.01",
        "--explain",
        show=odd_lines,
    )
    print("\nThe sensor had been given faults of four minutes at 2026-01-02T09:20 and 2026-01-02T19:20.")
    print(f"\nNow look at {tumours[2].resolve()}")


def write_tumours(path: Path) -> None:
    """Write the measures of 569 tumours; the diagnosis is text, and so no feature."""
    data = load_breast_cancer()
    names = [str(name) for name in data.feature_names]
    diagnosis = np.where(data.target == 0, "malignant", "benign")
    pl.DataFrame(data.data, schema=names).insert_column(0, pl.Series("diagnosis", diagnosis)).write_csv(path)


def write_sensor(path: Path) -> None:
    """Write the temperature and vibration of a machine that has two faults."""
    rng = np.random.default_rng(0)
    minute = np.arange(MINUTES)
    temperature = 40.0 + 5.0 * np.sin(minute / 60.0) + rng.normal(0.0, 0.3, MINUTES)
    vibration = 1.0 + 0.1 * np.sin(minute / 7.0) + rng.normal(0.0, 0.02, MINUTES)
    vibration[2000:2004] += 1.0
    temperature[2600:2604] -= 12.0
    time = np.datetime64("2026-01-01T00:00") + minute.astype("timedelta64[m]")
    table = {"time": time.astype(str), "temperature": temperature.round(2), "vibration": vibration.round(3)}
    pl.DataFrame(table).write_csv(path)


def run(*arguments: str | Path, show=None) -> None:  # noqa: ANN001
    """Show a command and run it; what it prints is passed on, or shown in another way."""
    words = list(map(str, arguments))
    print(f"$ imondrian {' '.join(words)}")
    sys.stdout.flush()
    done = subprocess.run(
        [sys.executable, "-m", "imondrian", *words], check=True, text=True, stdout=subprocess.PIPE if show else None
    )
    if show:
        show(done.stdout)


def odd_lines(text: str) -> None:
    """Print the ten oddest of the lines that are anomalies."""
    print("The ten oddest of its anomalies:")
    odd = [record for record in map(json.loads, text.splitlines()) if record["is_anomaly"]]
    oddest = sorted(odd, key=lambda record: -record["anomaly_score"])[:10]
    for record in sorted(oddest, key=lambda record: record["row"]):
        print(f"  {record['time']}  score {record['anomaly_score']:.3f}  {record['explanation']}")


if __name__ == "__main__":
    main()
