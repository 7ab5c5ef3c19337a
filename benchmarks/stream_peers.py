"""Stream detectors, ours and the peers', after a warm-up, with rows in the form that each accepts."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from workloads import SAMPLES, TREES, WINDOW, as_records

N_WARM = 6_000  # rows after which all detectors are in a steady state


class Stream(NamedTuple):
    """A detector that has learned the first rows of a table, and the remaining rows."""

    step: Callable[[Any], object]  # scores a row and learns it
    rows: list[Any]


def our_detector(n_features: int, preset: str, n_threads: int = 1) -> Any:
    """Return our detector."""
    from imondrian import StreamDetector

    sizes = {"window": WINDOW, "max_samples": SAMPLES, "n_trees": TREES}
    return StreamDetector(n_features, **sizes, preset=preset, threshold="kmeans", n_jobs=n_threads)


def our_stream(X: np.ndarray, preset: str = "practice") -> Stream:
    """Return our detector after the warm-up."""
    detector = our_detector(X.shape[1], preset)
    detector.process_many(X[:N_WARM])
    return Stream(detector.process, list(X[N_WARM:]))


def new_krcf(X: np.ndarray) -> Any:
    """Return the random cut forest of krcf (Rust) after the warm-up."""
    from krcf import RandomCutForest

    options = {"dimensions": X.shape[1], "shingle_size": 1, "num_trees": TREES, "sample_size": SAMPLES}
    forest = RandomCutForest({**options, "output_after": SAMPLES})
    for x in X[:N_WARM]:
        forest.update(x)
    return forest


def krcf_stream(X: np.ndarray) -> Stream:
    """Score with krcf, then update it."""
    forest = new_krcf(X)

    def step(x: np.ndarray) -> None:
        forest.score(x)
        forest.update(x)

    return Stream(step, list(X[N_WARM:]))


def new_river(records: list[dict[str, float]]) -> Any:
    """Return River's half-space trees after the warm-up, with their default of 10 trees."""
    from river.anomaly import HalfSpaceTrees

    trees = HalfSpaceTrees(seed=0)
    for record in records[:N_WARM]:
        trees.learn_one(record)
    return trees


def river_stream(X: np.ndarray) -> Stream:
    """Score with half-space trees, then learn."""
    records = as_records(X)
    trees = new_river(records)

    def step(record: dict[str, float]) -> None:
        trees.score_one(record)
        trees.learn_one(record)

    return Stream(step, records[N_WARM:])


def rrcf_stream(X: np.ndarray) -> Stream:
    """Return rrcf trees over the last points; each point is inserted, then scored. Rows are pairs (number, point)."""
    from rrcf import RCTree

    labels = range(N_WARM - SAMPLES, N_WARM)
    trees = [RCTree(X[labels.start : labels.stop], index_labels=labels, random_state=seed) for seed in range(TREES)]

    def step(numbered: tuple[int, np.ndarray]) -> None:
        number, x = numbered
        for tree in trees:
            tree.forget_point(number - SAMPLES)
            tree.insert_point(x, index=number)
            tree.codisp(number)

    return Stream(step, list(enumerate(X[N_WARM:], N_WARM)))


STREAMS = {"ours": our_stream, "krcf": krcf_stream, "river": river_stream, "rrcf": rrcf_stream}
