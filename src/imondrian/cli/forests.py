"""Forests fitted as the options say."""

from typing import Any

import numpy as np

from imondrian.cli.rows import Rows
from imondrian.cli.settings import Making
from imondrian.defaults import preset_of
from imondrian.errors import InvalidInputError
from imondrian.fitted import Fitted, fit, seed_from
from imondrian.thresholds import THRESHOLDS


def fitted(rows: Rows, making: Making) -> Fitted:
    """Fit a forest, as IsolationMondrianForest does, on the rows that have all their values."""
    preset = preset_of(making.preset)
    parameters = {
        "preset": making.preset,
        "n_estimators": making.trees,
        "max_samples": making.samples or None,
        "window": None,
        "kind": preset.kind,
        "scale": preset.scale,
        "contamination": read_threshold(making.threshold) or preset.contamination,
        "n_jobs": checked_jobs(making.jobs),
        "random_state": making.seed,
    }
    seed = seed_from(np.random.RandomState(making.seed))  # the forest that scikit-learn users get
    return fit(rows.points[rows.usable], parameters, seed, rows.features)


def check_making(making: Making) -> None:
    """Refuse what cannot be before any work is done."""
    read_threshold(making.threshold)
    checked_jobs(making.jobs)


def read_threshold(text: str | None) -> Any:
    """Read a threshold: 'kmeans', 'auto' (as is 0.5), or a share below 0.5."""
    if text is None or text in THRESHOLDS:
        return text
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 < share <= 0.5:
        raise InvalidInputError(f"--threshold must be 'kmeans', 'auto' or a share below 0.5, but is {text!r}.")
    return "auto" if share == 0.5 else share


def checked_jobs(jobs: int) -> int:
    """Check the number of threads."""
    if jobs == 0:
        raise InvalidInputError("--jobs must not be 0; -1 stands for all processors.")
    return jobs
