"""Exported models in ONNX Runtime, compared with the library: labels and scores on all open data sets, and speed.

python benchmarks/onnx_export.py  (the data sets are in the folder named by IMONDRIAN_DATA, or downloaded)
"""

import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import onnxruntime

from imondrian import IsolationMondrianForest
from imondrian.datasets import load, names
from imondrian.onnx import to_onnx

ROWS_PER_BLOCK = 10_000
N_ROWS, FEATURES, REPEATS = 100_000, (3, 10, 30), 7
Score = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def main() -> None:
    """Print the differences on all open data sets, then the speed."""
    print(
        "| data set | rows | type | other labels | largest difference of a score | cuts that float32 cannot express |"
    )
    print("|---|---|---|---|---|---|")
    for name in names("open"):
        for line in differences(name):
            print(line, flush=True)
    print("\n| features | imondrian, rows/s | ONNX float32 | ONNX float64 |\n|---|---|---|---|")
    for n_features in FEATURES:
        print(speed(n_features), flush=True)


def differences(name: str) -> Iterator[str]:
    """Yield a line for each type of the input: how labels and scores differ from those of the library."""
    X = load(name).X
    model = IsolationMondrianForest(kind="depth", contamination=0.05, random_state=0).fit(X)
    expected, labels = -model.score_samples(X), model.predict(X) == -1
    for dtype in ("float32", "float64"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            score = session(model, dtype, X)
        scores, is_anomaly = score(X.astype(dtype))
        difference = np.abs(scores - expected).max()
        cuts = str(caught[0].message).split(" cuts")[0] if caught else "0"
        n_other = np.count_nonzero(is_anomaly != labels)
        yield f"| {name} | {len(X):,} | {dtype} | {n_other} | {difference:.1e} | {cuts} |"


def speed(n_features: int) -> str:
    """Return a line with the rows per second of each system, the median of alternating runs with one thread."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, n_features))
    model = IsolationMondrianForest(kind="depth", contamination=0.05, random_state=0).fit(X)
    systems: list[tuple[Callable[[np.ndarray], object], np.ndarray]] = [(model.predict, X)]
    systems += [(session(model, dtype, None), X.astype(dtype)) for dtype in ("float32", "float64")]
    seconds = np.empty((REPEATS, len(systems)))
    for function, rows in systems:
        function(rows[:1000])
    for i in range(REPEATS):
        for k, (function, rows) in enumerate(systems):
            start = time.perf_counter()
            function(rows)
            seconds[i, k] = time.perf_counter() - start
    rates = N_ROWS / np.median(seconds, axis=0)
    return f"| {n_features} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |"


def session(model: IsolationMondrianForest, dtype: str, rows: np.ndarray | None) -> Score:
    """Return a function that scores rows in ONNX Runtime, in blocks and with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = to_onnx(model, dtype=dtype, rows=rows).SerializeToString()
    runtime = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def score(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        blocks = [runtime.run(None, {"X": X[i : i + ROWS_PER_BLOCK]}) for i in range(0, len(X), ROWS_PER_BLOCK)]
        scores, is_anomaly = (np.concatenate(each) for each in zip(*blocks, strict=True))
        return scores, is_anomaly

    return score


if __name__ == "__main__":
    main()
