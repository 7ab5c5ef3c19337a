"""Saving and loading a forest, and the size of its file, beside pickles of the peers.

Our files are synced when they are written, and checked when they are read.
"""

import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import imondrian
from contests import Contest, Effort
from peers import FORESTS, fitted, present
from timing import Entrant, Measurement, Task, measurements, time_tasks
from workloads import SAMPLES, TREES, normal_points

SHAPES = {10: 10_000, 500: 1_000}  # number of features: number of rows
VERBS = SAVE, LOAD, SIZE = "save", "load", "size of the file of"
REPEATS = 15
MEGABYTE = 1e6


def name_of(verb: str, n_features: int) -> str:
    """Return the name of a workload."""
    return f"{verb} {TREES} x {SAMPLES}, d = {n_features}"


def save_pickle(model: Any, path: Path) -> None:
    """Write a pickle."""
    with path.open("wb") as file:
        pickle.dump(model, file, pickle.HIGHEST_PROTOCOL)


def load_pickle(path: Path) -> Any:
    """Read a pickle."""
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 (written here)


def measure(effort: Effort, n_features: int) -> list[Measurement]:
    """Save the forests, then load them; then the sizes of the files."""
    X = normal_points(effort.rows(SHAPES[n_features]), n_features)
    models = {name: fitted(name, X) for name in present(FORESTS)}
    repeats = effort.repeats(REPEATS)
    save, load, size = (name_of(verb, n_features) for verb in VERBS)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in models}
        saves = {name: partial(saver(name), model, paths[name]) for name, model in models.items()}
        loads = {name: partial(loader(name), paths[name]) for name in models}
        return [
            *time_tasks(save, {Entrant(name): Task(task) for name, task in saves.items()}, repeats, "ms"),
            *time_tasks(load, {Entrant(name): Task(task) for name, task in loads.items()}, repeats, "ms"),
            *measurements(
                size, {Entrant(name): [path.stat().st_size / MEGABYTE] for name, path in paths.items()}, "MB"
            ),
        ]


def saver(name: str) -> Callable[[Any, Path], None]:
    """Return the function that saves a model."""
    return imondrian.save if name == "ours" else save_pickle


def loader(name: str) -> Callable[[Path], Any]:
    """Return the function that loads a model."""
    return imondrian.load if name == "ours" else load_pickle


CONTESTS = [
    Contest(tuple(name_of(verb, n_features) for verb in VERBS), partial(measure, n_features=n_features))
    for n_features in SHAPES
]
