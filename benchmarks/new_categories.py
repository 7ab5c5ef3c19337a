"""How often a row whose only oddity is a category never seen before ranks in the top 1 % and is explained by it.

python benchmarks/new_categories.py  (100 tables of 2,000 rows, and 100 streams, each with one such row planted)
"""

import numpy as np
import pandas as pd

from imondrian import IsolationMondrianForest, StreamDetector

N_PLANTINGS = 100
N_ROWS = WINDOW = 2_000
MAX_FEATURES = 10
NEW = "never seen"


def main() -> None:
    """Print the number of plantings that are found, by the number of features."""
    print("| features | in a table | on a stream |\n|---|---|---|")
    for n_features in (1, 2, 5, MAX_FEATURES):
        batch, stream = (
            sum(found(seed, n_features) for seed in range(N_PLANTINGS)) for found in (found_in_batch, found_on_stream)
        )
        print(f"| {n_features} | {batch} of {N_PLANTINGS} | {stream} of {N_PLANTINGS} |")


def orders(seed: int, n_features: int | None, n_before: int) -> tuple[pd.DataFrame, int, str]:
    """Return n_before ordinary rows and 2,000 more, one with a new category; the index of this row; and its feature.

    About half of the features are numbers (normal, log-normal or uniform), the others text with 2 to 20 categories, the
    rarest of which has 2 % of the rows or more. There are 1 to 10 features unless their number is given.
    """
    rng = np.random.default_rng(seed)
    n_features, n_rows = int(rng.integers(1, MAX_FEATURES + 1)) if n_features is None else n_features, n_before + N_ROWS
    planted = int(rng.integers(n_features))
    is_text = (rng.random(n_features) < 0.5) | (np.arange(n_features) == planted)
    columns = {f"x{j}": _texts(rng, n_rows) if is_text[j] else _numbers(rng, n_rows) for j in range(n_features)}
    row = n_before + int(rng.integers(N_ROWS))
    columns[f"x{planted}"][row] = NEW
    return pd.DataFrame(columns), row, f"x{planted}"


def found_in_batch(seed: int, n_features: int | None = None) -> bool:
    """Fit a table; return True if the row ranks in the top 1 % and the feature leads its explanation."""
    frame, row, feature = orders(seed, n_features, 0)
    model = IsolationMondrianForest(random_state=seed).fit(frame)
    parts = model.explain(frame.iloc[[row]]).iloc[0]
    return _is_in_top(-model.score_samples(frame), row) and parts.abs().idxmax() == feature


def found_on_stream(seed: int, n_features: int | None = None) -> bool:
    """Like `found_in_batch` for the scores of 2,000 rows of a stream, after one window of ordinary rows."""
    frame, row, feature = orders(seed, n_features, WINDOW)
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    detector = StreamDetector(frame.shape[1], window=WINDOW, categorical=text, seed=seed)
    before = detector.process_many(frame.iloc[:row]).score
    parts = {name: abs(part) for name, part in detector.explain(frame.iloc[row]).items()}
    scores = np.concatenate([before, detector.process_many(frame.iloc[row:]).score])
    return _is_in_top(scores[WINDOW:], row - WINDOW) and max(parts, key=parts.__getitem__) == feature


def _is_in_top(scores: np.ndarray, row: int) -> bool:
    return bool((scores > scores[row]).sum() < N_ROWS // 100)


def _numbers(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    draws = [rng.normal(size=n_rows), rng.lognormal(size=n_rows), rng.uniform(size=n_rows)]
    return draws[int(rng.integers(3))] * 10.0 ** float(rng.integers(-2, 4))


def _texts(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    n_categories = int(rng.integers(2, 21))
    shares = 0.02 + (1.0 - 0.02 * n_categories) * rng.dirichlet(np.ones(n_categories))
    return rng.choice([f"c{k}" for k in range(n_categories)], n_rows, p=shares).astype(object)


if __name__ == "__main__":
    main()
