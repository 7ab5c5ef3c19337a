"""How often a row whose only oddity is a category never seen before ranks in the top 1 % and is explained by it.

python benchmarks/new_categories.py  (100 plantings in tables of 2,000 rows, and 100 on streams after one window)
"""

import numpy as np
import pandas as pd

from imondrian import IsolationMondrianForest, StreamDetector

N_PLANTINGS = 100
N_ROWS = 2_000
MAX_FEATURES = 10
NEW = "never seen"


def main() -> None:
    """Print the number of plantings that are found, by the number of features."""
    print("| features | in a table | on a stream |\n|---|---|---|")
    for n_features in (1, 2, 5, MAX_FEATURES):
        plantings = [orders(seed, n_features) for seed in range(N_PLANTINGS)]
        batch, stream = (sum(found(*each) for each in plantings) for found in (found_in_batch, found_on_stream))
        print(f"| {n_features} | {batch} of {N_PLANTINGS} | {stream} of {N_PLANTINGS} |")


def orders(seed: int, n_features: int | None = None) -> tuple[pd.DataFrame, int, str]:
    """Return a table of ordinary features, the row with a category that is new, and the feature that has it.

    About half of the features are numbers (normal, log-normal or uniform), the others text with 2 to 20 categories, the
    rarest of which has 2 % of the rows or more. There are 1 to 10 features unless their number is given.
    """
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(1, MAX_FEATURES + 1)) if n_features is None else n_features
    planted = int(rng.integers(n_features))
    is_text = (rng.random(n_features) < 0.5) | (np.arange(n_features) == planted)
    columns = {f"x{j}": _texts(rng) if is_text[j] else _numbers(rng) for j in range(n_features)}
    row = int(rng.integers(N_ROWS))
    columns[f"x{planted}"][row] = NEW
    return pd.DataFrame(columns), row, f"x{planted}"


def found_in_batch(frame: pd.DataFrame, row: int, feature: str) -> bool:
    """Fit a table; return True if the row ranks in the top 1 % and the feature leads its explanation."""
    model = IsolationMondrianForest(random_state=row).fit(frame)
    scores = -model.score_samples(frame)
    parts = model.explain(frame.iloc[[row]]).iloc[0]
    return (scores > scores[row]).sum() < N_ROWS // 100 and parts.abs().idxmax() == feature


def found_on_stream(frame: pd.DataFrame, row: int, feature: str) -> bool:
    """Like `found_in_batch` for a stream: the row comes last, and one window of ordinary rows before it."""
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    ordinary = frame.drop(index=row)
    detector = StreamDetector(frame.shape[1], window=len(ordinary), categorical=text, seed=row)
    detector.process_many(ordinary)
    scores, score = detector.rescore()[1], detector.score(frame.iloc[[row]])[0]
    parts = {name: abs(part) for name, part in detector.explain(frame.iloc[row]).items()}
    return (scores > score).sum() < N_ROWS // 100 and max(parts, key=parts.__getitem__) == feature


def _numbers(rng: np.random.Generator) -> np.ndarray:
    draws = [rng.normal(size=N_ROWS), rng.lognormal(size=N_ROWS), rng.uniform(size=N_ROWS)]
    return draws[int(rng.integers(3))] * 10.0 ** float(rng.integers(-2, 4))


def _texts(rng: np.random.Generator) -> np.ndarray:
    n_categories = int(rng.integers(2, 21))
    shares = 0.02 + (1.0 - 0.02 * n_categories) * rng.dirichlet(np.ones(n_categories))
    return rng.choice([f"c{k}" for k in range(n_categories)], N_ROWS, p=shares).astype(object)


if __name__ == "__main__":
    main()
