"""Saving and loading a forest, beside pickles of the peers. Our files are checked when they are read."""

import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import imondrian
from contests import Contest, Effort
from peers import FORESTS, fitted, present
from timing import Entrant, Measurement, Task, time_tasks
from workloads import SAMPLES, TREES, normal_points

SAVE, LOAD = (f"{verb} {TREES} x {SAMPLES}, d = 10" for verb in ("save", "load"))
REPEATS = 15


def save_pickle(model: Any, path: Path) -> None:
    """Write a pickle."""
    with path.open("wb") as file:
        pickle.dump(model, file, pickle.HIGHEST_PROTOCOL)


def load_pickle(path: Path) -> Any:
    """Read a pickle."""
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301 (written here)


def measure(effort: Effort) -> list[Measurement]:
    """Save the forests, then load them."""
    X = normal_points(10_000, 10)
    models = {name: fitted(name, X) for name in present(FORESTS)}
    repeats = effort.repeats(REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / name for name in models}
        saves = {name: partial(saver(name), model, paths[name]) for name, model in models.items()}
        loads = {name: partial(loader(name), paths[name]) for name in models}
        return [
            *time_tasks(SAVE, {Entrant(name): Task(save) for name, save in saves.items()}, repeats, "ms"),
            *time_tasks(LOAD, {Entrant(name): Task(load) for name, load in loads.items()}, repeats, "ms"),
        ]


def saver(name: str) -> Callable[[Any, Path], None]:
    """Return the function that saves a model."""
    return imondrian.save if name == "ours" else save_pickle


def loader(name: str) -> Callable[[Path], Any]:
    """Return the function that loads a model."""
    return imondrian.load if name == "ours" else load_pickle


CONTESTS = [Contest((SAVE, LOAD), measure)]
