"""IsolationMondrianForest and IsolationForest: a set where the choice does not matter, and two where it does.

Nothing is downloaded: two sets come with scikit-learn, and the set "two moons" is generated as in the paper.
The measure is the area under the ROC curve: 1 is a perfect ranking, 0.5 is random. Both models have their default
settings.

python examples/compare_isolation_forest.py
"""

from collections.abc import Iterator

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from imondrian import IsolationMondrianForest
from imondrian.datasets import make_synthetic

MODELS: dict[str, type[OutlierMixin]] = {
    "IsolationForest": IsolationForest,
    "IsolationMondrianForest": IsolationMondrianForest,
}
Table = tuple[str, np.ndarray, np.ndarray, int]  # title, rows, labels, number of seeds


def main() -> None:
    """Print the mean area under the ROC curve of both models on each set."""
    print(f"{'':48} {'  '.join(MODELS)}")
    for title, X, y, n_seeds in tables():
        areas = [np.mean([area(model, X, y, seed) for seed in range(n_seeds)]) for model in MODELS.values()]
        cells = "  ".join(f"{value:{len(name)}.3f}" for name, value in zip(MODELS, areas, strict=True))
        print(f"{title:48} {cells}")
    print("\nA row far outside the data (moons): scores at 2, 20 and 200 times the range")
    for name, model in MODELS.items():
        fitted = model(random_state=0).fit(make_synthetic("moons").X)
        print(f"  {name:24} {(-fitted.score_samples([[4.0, 4.0], [40.0, 40.0], [400.0, 400.0]])).round(3)}")


def area(model: type[OutlierMixin], X: np.ndarray, y: np.ndarray, seed: int) -> float:
    """Return the area under the ROC curve of a model fitted on all rows, without the labels."""
    return roc_auc_score(y, -model(random_state=seed).fit(X).score_samples(X))


def tables() -> Iterator[Table]:
    """Yield the sets: first one where both are equally good, then those where they differ."""
    rng = np.random.default_rng(0)
    X, target = load_breast_cancer(return_X_y=True)
    yield "breast cancer: 20 malignant among 357 benign", *rare(X, target == 0, 20, rng), 5
    moons = make_synthetic("moons")
    yield "two moons (generated): 45 among 255", moons.X, moons.y, 5
    X, target = load_digits(return_X_y=True)
    for digit in (3, 4, 8):
        yield f"handwritten digits: 20 images of {digit}", *rare(X, target == digit, 20, rng), 2


def rare(X: np.ndarray, is_anomaly: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return all ordinary rows and n of the anomalies."""
    kept = np.concatenate([np.flatnonzero(~is_anomaly), rng.choice(np.flatnonzero(is_anomaly), n, replace=False)])
    return X[kept], is_anomaly[kept]


if __name__ == "__main__":
    main()
