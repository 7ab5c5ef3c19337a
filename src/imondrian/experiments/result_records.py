"""Results on disk: measurements as CSV, and their metadata (settings, machine, versions) as JSON."""

import csv
import io
import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.base.errors import DamagedFileError
from imondrian.base.files import atomic_write
from imondrian.experiments.repeats import Row

_PACKAGES = ("imondrian", "numpy", "numba", "scipy", "scikit-learn", "pyod", "matplotlib")
_TEXT_COLUMNS = {"check", "claim", "figure", "measure", "method", "mode", "part", "rule", "set", "that", "this"}


class Record(NamedTuple):
    """The measurements of one experiment and their metadata: settings, machine, versions, seconds."""

    name: str
    rows: list[Row]
    metadata: dict[str, Any]


def new_record(name: str, rows: list[Row], settings: dict[str, Any], seconds: float) -> Record:
    """Return a record of measurements made now on this machine."""
    return Record(
        name,
        rows,
        {
            "settings": settings,
            "seconds": round(seconds, 1),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": machine(),
            "versions": versions(),
        },
    )


def write_record(record: Record, columns: Sequence[str], folder: Path) -> None:
    """Write `name.csv` and `name.json`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _as_cell(row.get(name)) for name in columns} for row in record.rows)
    _write(folder / f"{record.name}.csv", text.getvalue())
    _write(folder / f"{record.name}.json", json.dumps(record.metadata, indent=1) + "\n")


def read_record(name: str, folder: Path) -> Record | None:
    """Read a record written by `write_record`; return None if there is none of that name."""
    table, metadata_file = folder / f"{name}.csv", folder / f"{name}.json"
    if not (table.exists() and metadata_file.exists()):
        return None
    try:
        rows = [
            {key: cell if key in _TEXT_COLUMNS else _as_number(cell) for key, cell in row.items()}
            for row in csv.DictReader(table.read_text("utf-8").splitlines())
        ]
        metadata = json.loads(metadata_file.read_text("utf-8"))
        missing = {"settings", "seconds", "date", "machine", "versions"} - set(metadata)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")  # noqa: TRY301
        return Record(name, rows, metadata)
    except (ValueError, TypeError) as error:
        raise DamagedFileError(f"{table} or {metadata_file.name} is not a valid record of results: {error}.") from None


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gigabytes": _memory(),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages involved."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _memory() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _as_cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _as_number(cell: str) -> float | int | None:
    if cell == "":
        return None
    number = float(cell)
    return int(number) if number.is_integer() and "." not in cell else number


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text.encode())
