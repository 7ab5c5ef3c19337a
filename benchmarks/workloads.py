"""Input data of the workloads: seeded, and the same for all contestants and versions."""

import numpy as np

TREES, SAMPLES, WINDOW = 100, 256, 2_048
ONLINE_ROWS, ONLINE_START = 95_156, 19_000


def normal_points(n_rows: int, n_features: int) -> np.ndarray:
    """Return normally distributed points, every hundredth scaled by 5."""
    rng = np.random.default_rng(20201011)
    points = rng.normal(size=(n_rows, n_features))
    points[::100] *= 5.0
    return points


def smtp_like_points() -> np.ndarray:
    """Return points like those of the SMTP set: three log counts, with 23,926 repeated rows."""
    rng = np.random.default_rng(20201012)
    points = rng.normal([0.5, 7.0, 5.8], [1.5, 1.0, 0.6], size=(ONLINE_ROWS, 3))
    order = rng.permutation(ONLINE_ROWS)
    repeats, originals = order[:23_926], order[23_926:]
    points[repeats] = points[rng.choice(originals, repeats.size)]
    return points


def as_records(X: np.ndarray) -> list[dict[str, float]]:
    """Return the rows as dictionaries with features scaled to [0, 1], as River's half-space trees require."""
    low, high = X.min(axis=0), X.max(axis=0)
    names = [f"x{j}" for j in range(X.shape[1])]
    return [dict(zip(names, row, strict=True)) for row in ((X - low) / (high - low)).tolist()]
