"""Demo: write two tables, and find the anomalies in them with the command line.

Creates the folder `demo` with the data, the scored table, the model and a report with plots.
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
    """Write the data, run the commands and print what was found."""
    FOLDER.mkdir(exist_ok=True)
    write_tumours(FOLDER / "tumours.csv")
    write_sensor(FOLDER / "sensor.csv")
    tumours = [FOLDER / name for name in ("tumours.csv", "scored.csv", "report.html", "model.imf")]
    run("detect", tumours[0], "-o", tumours[1], "--report", tumours[2], "--save", tumours[3])
    scored = pl.read_csv(tumours[1])
    anomalies = scored.filter(pl.col("is_anomaly"))
    n_malignant = anomalies.filter(pl.col("diagnosis") == "malignant").height
    share = (scored["diagnosis"] == "malignant").mean()
    print(
        f"\n{n_malignant} of the {anomalies.height} anomalies are malignant, compared with {share:.0%} of all tumours."
    )
    print("The diagnosis was not used.\n")
    run(
        "watch",
        FOLDER / "sensor.csv",
        "--time",
        "time",
        "--threshold",
        "0.01",
        "--explain",
        show=print_anomalies,
    )
    print("\nThe sensor data have faults of four minutes at 2026-01-02T09:20 and 2026-01-02T19:20.")
    print(f"\nOpen {tumours[2].resolve()}")


def write_tumours(path: Path) -> None:
    """Write the measurements of 569 tumours; the diagnosis is text, so it is not a feature."""
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
    """Print a command and run it; its output is printed, or passed to `show`."""
    words = list(map(str, arguments))
    print(f"$ imondrian {' '.join(words)}")
    sys.stdout.flush()
    done = subprocess.run(
        [sys.executable, "-m", "imondrian", *words], check=True, text=True, stdout=subprocess.PIPE if show else None
    )
    if show:
        show(done.stdout)


def print_anomalies(text: str) -> None:
    """Print the ten anomalies with the highest scores, in order of time."""
    print("The ten anomalies with the highest scores:")
    anomalies = [record for record in map(json.loads, text.splitlines()) if record["is_anomaly"]]
    highest = sorted(anomalies, key=lambda record: -record["anomaly_score"])[:10]
    for record in sorted(highest, key=lambda record: record["row"]):
        print(f"  {record['time']}  score {record['anomaly_score']:.3f}  {record['explanation']}")


if __name__ == "__main__":
    main()
