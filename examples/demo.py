"""Demo: write two tables, and find the anomalies in them with the command line.

Creates the folder `demo` with the data, the scored table, the model and a report with plots.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl

FOLDER = Path("demo")
N_ORDERS = 5_000
MINUTES = 3_000
MISTAKES = {  # orders with a mistake, by their position
    1_200: {"country": "XX"},
    2_400: {"amount": 99_999.0},
    3_600: {"channel": "test"},
    4_800: {"quantity": 1_000},
}


def main() -> None:
    """Write the data, run the commands and print what was found."""
    FOLDER.mkdir(exist_ok=True)
    write_orders(FOLDER / "orders.csv")
    write_sensor(FOLDER / "sensor.csv")
    orders, scored_file, report, model = (
        FOLDER / name for name in ("orders.csv", "scored.csv", "report.html", "model.imf")
    )
    outputs = ("-o", scored_file, "--report", report, "--save", model)
    run("detect", orders, "--id", "order", "--time", "created", *outputs)
    scored = pl.read_csv(scored_file)
    scores, is_anomaly = scored["anomaly_score"].rank("ordinal", descending=True), scored["is_anomaly"]
    ranks = ", ".join(str(rank) for rank in sorted(scores[i] for i in MISTAKES))
    print(f"\nThe {len(MISTAKES)} orders with a mistake have the ranks {ranks} among {N_ORDERS:,} orders;")
    print(f"{sum(is_anomaly[i] for i in MISTAKES)} of the {is_anomaly.sum()} anomalies are these orders.\n")
    run("watch", FOLDER / "sensor.csv", "--time", "time", "--explain", show=print_anomalies)
    print("\nThe sensor data have faults of four minutes at 2026-01-02T09:20 and 2026-01-02T19:20.")
    print(f"\nOpen {report.resolve()}")


def write_orders(path: Path) -> None:
    """Write orders with ids, dates, categories, amounts and gaps; four of them have a mistake."""
    rng = np.random.default_rng(0)
    created = np.datetime64("2026-01-01T00:00") + np.sort(rng.integers(0, 90 * 24 * 60, N_ORDERS))
    columns = {
        "order": [f"ORD-{10_000 + i}" for i in range(N_ORDERS)],
        "created": created.astype(str).tolist(),
        "country": rng.choice(["DE", "FR", "IT", "ES", "AT"], N_ORDERS, p=[0.4, 0.25, 0.2, 0.1, 0.05]).tolist(),
        "channel": rng.choice(["web", "store", "phone"], N_ORDERS, p=[0.6, 0.3, 0.1]).tolist(),
        "gift": rng.choice(["true", "false"], N_ORDERS, p=[0.1, 0.9]).tolist(),
        "quantity": rng.poisson(2.0, N_ORDERS) + 1,
        "amount": rng.lognormal(3.5, 0.7, N_ORDERS).round(2),
        "discount": rng.uniform(0.0, 20.0, N_ORDERS).round(1),
    }
    for i, mistake in MISTAKES.items():
        for name, value in mistake.items():
            columns[name][i] = value
    for name in ("amount", "discount"):
        is_missing = rng.random(N_ORDERS) < 0.1
        is_missing[list(MISTAKES)] = False
        columns[name] = [None if gap else value for gap, value in zip(is_missing, columns[name], strict=True)]
    pl.DataFrame(columns).write_csv(path)


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
    """Print at most ten anomalies, those with the highest scores, in order of time."""
    print("The anomalies with the highest scores, in order of time:")
    anomalies = [record for record in map(json.loads, text.splitlines()) if record["is_anomaly"]]
    highest = sorted(anomalies, key=lambda record: -record["anomaly_score"])[:10]
    for record in sorted(highest, key=lambda record: record["row"]):
        print(f"  {record['time']}  score {record['anomaly_score']:.3f}  {record['explanation']}")


if __name__ == "__main__":
    main()
