"""The data of the workloads: frozen, seeded, the same for all."""

import numpy as np

TREES, SAMPLES, WINDOW = 100, 256, 2_048
ONLINE_ROWS, ONLINE_START = 95_156, 19_000


def crowd(n_rows: int, n_features: int) -> np.ndarray:
    """Make normal points, one in a hundred five times as far out."""
    rng = np.random.default_rng(20201011)
    points = rng.normal(size=(n_rows, n_features))
    points[::100] *= 5.0
    return points


def online() -> np.ndarray:
    """Make points of the size and kind of the SMTP set: three log counts, 23,926 rows repeats of others."""
    rng = np.random.default_rng(20201012)
    points = rng.normal([0.5, 7.0, 5.8], [1.5, 1.0, 0.6], size=(ONLINE_ROWS, 3))
    order = rng.permutation(ONLINE_ROWS)
    repeats, originals = order[:23_926], order[23_926:]
    points[repeats] = points[rng.choice(originals, repeats.size)]
    return points


def as_records(X: np.ndarray) -> list[dict[str, float]]:
    """Make dictionaries of the rows, each feature brought to [0, 1], as River's half-space trees want them."""
    low, high = X.min(axis=0), X.max(axis=0)
    names = [f"x{j}" for j in range(X.shape[1])]
    return [dict(zip(names, row, strict=True)) for row in ((X - low) / (high - low)).tolist()]
