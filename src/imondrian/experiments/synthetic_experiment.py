"""Figures 1 and 2 of the paper: forests on four sets in the plane, in a batch and online in five steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from imondrian.alarms.thresholds import two_means
from imondrian.datasets import Dataset, make_synthetic
from imondrian.engine.jit import Array
from imondrian.experiments.detector_protocol import Detector
from imondrian.experiments.methods import BATCH, ONLINE
from imondrian.experiments.ranking_metrics import auc
from imondrian.experiments.repeats import Row, StepProgress
from imondrian.experiments.splits import stratified_stages
from imondrian.plots import Grid, Surface, grid_over

BATCH_FIGURE, ONLINE_FIGURE = "1", "2"
HALF, K_MEANS = "0.5", "K-means"
RULES: dict[str, Callable[[Array], float]] = {HALF: lambda _scores: 0.5, K_MEANS: two_means}
BATCH_FIGURE_RULES = {
    "imforest": (HALF, K_MEANS),
    "iforest": (HALF,),
    "size-std": (K_MEANS,),  # not in the paper
}
COLUMNS = (
    "figure", "set", "method", "rule", "step", "seed", "threshold", "n_rows", "flagged", "true_positives",
    "false_positives", "false_negatives", "recall", "precision", "f1", "auc",
)  # fmt: skip
CLAIM_COLUMNS = (
    "claim",
    "set",
    "measure",
    "this",
    "that",
    "this_mean",
    "that_mean",
    "difference",
    "deviation",
    "seeds",
)
_MARGIN = 0.05  # around the points, as a share of their range


class Detection(NamedTuple):
    """The result of a method for the rows it has learned.

    Attributes
    ----------
    method : str
    step : int or None
        The t of Figure 2; None if all rows were learned at once.
    points : array of shape (n_rows, 2)
    is_outlier : array of bool, shape (n_rows,)
        The true labels.
    scores : array of shape (n_rows,)
    thresholds : dict of float
        For each rule, the score above which a row is an anomaly.
    """

    method: str
    step: int | None
    points: Array
    is_outlier: Array
    scores: Array
    thresholds: Mapping[str, float]


class DetectionMap(NamedTuple):
    """A detection, and the scores of the detector over the plane."""

    detection: Detection
    surface: Surface


class DatasetMaps(NamedTuple):
    """A data set with its maps: one for each method in Figure 1, one for each step in Figure 2."""

    name: str
    maps: tuple[DetectionMap, ...]


class SyntheticResult(NamedTuple):
    """The contents of both figures, a row for each detection and rule, and the test of each claim over many seeds."""

    batch: list[DatasetMaps]
    online: list[DatasetMaps]
    rows: list[Row]
    claims: list[Row]


def run(
    names: Sequence[str], seed: int, seeds: Sequence[int], progress: StepProgress, n_nodes: int = 120
) -> SyntheticResult:
    """Run both figures with one seed, and test the paper's claims about them with many seeds.

    Parameters
    ----------
    names : sequence of str
        Names of synthetic sets.
    seed : int
        Seed of the sets and forests of the figures.
    seeds : sequence of int
        Seeds of the sets and forests for the claims.
    progress : callable
        Called with what has been done and the share of all work done.
    n_nodes : int, default=120
        Number of grid nodes along each axis of the plane.

    Examples
    --------
    >>> result = run(["blob"], seed=0, seeds=[], progress=lambda *_: None, n_nodes=20)
    >>> [item.detection.method for item in result.batch[0].maps]
    ['imforest', 'iforest', 'size-std']
    >>> [item.detection.step for item in result.online[0].maps]
    [1, 2, 3, 4, 5]
    """
    sets = [make_synthetic(name, seed) for name in names]
    n_cells = 2 * len(sets) + len(seeds)
    plane = grid_over(np.concatenate([data.X for data in sets]), n_nodes, _MARGIN)
    figures: dict[str, list[DatasetMaps]] = {figure: [] for figure in FIGURES}
    rows: list[Row] = []
    for n_done, (figure, data) in enumerate(product(FIGURES, sets), 1):
        maps = [
            DetectionMap(detection, _surface(detector, plane)) for detection, detector in FIGURES[figure](data, seed)
        ]
        figures[figure].append(DatasetMaps(data.name, tuple(maps)))
        rows += [row for item in maps for row in rows_of(figure, data.name, item.detection, seed)]
        progress(f"synthetic: figure {figure}, {data.name}", n_done / n_cells)
    table = claims(names, seeds, lambda text, share: progress(text, 1.0 - (1.0 - share) * len(seeds) / n_cells))
    return SyntheticResult(figures[BATCH_FIGURE], figures[ONLINE_FIGURE], rows, table)


def batch_detections(data: Dataset, seed: int) -> Iterator[tuple[Detection, Detector]]:
    """Yield the detection of each method of Figure 1 after learning a set at once, and the fitted method.

    The paper's forest holds samples of 256 points, does not scale the features, and scores by depth; iForest has
    scikit-learn's defaults. The third method is ours: the score "size", with features weighted by one over their
    standard deviations.
    """
    for name in BATCH_FIGURE_RULES:
        detector = BATCH[name].make(seed).fit(data.X)
        yield _detection(name, None, data, np.arange(len(data.X)), detector), detector


def online_detections(data: Dataset, seed: int) -> Iterator[tuple[Detection, Detector]]:
    """Yield the detection of the paper's forest for all rows so far after each of five steps, and the forest."""
    detector = ONLINE["imforest"].make(seed)
    so_far = np.empty(0, dtype=np.int64)
    for step, stage in enumerate(stratified_stages(data, seed), 1):
        so_far = np.concatenate([so_far, stage])
        (detector.fit if step == 1 else detector.extend)(data.X[stage])
        yield _detection("imforest", step, data, so_far, detector), detector


FIGURES: dict[str, Callable[[Dataset, int], Iterator[tuple[Detection, Detector]]]] = {
    BATCH_FIGURE: batch_detections,
    ONLINE_FIGURE: online_detections,
}


def _detection(method: str, step: int | None, data: Dataset, learned: Array, detector: Detector) -> Detection:
    scores = detector.learned_scores()
    thresholds = {name: rule(scores) for name, rule in RULES.items()}
    return Detection(method, step, data.X[learned], data.y[learned] == 1, scores, thresholds)


def _surface(detector: Detector, plane: Grid) -> Surface:
    return Surface(plane.x, plane.y, detector.score(plane.nodes).reshape(plane.y.size, plane.x.size))


def rows_of(figure: str, name: str, detection: Detection, seed: int) -> list[Row]:
    """Count the correct and wrong labels of each rule; recall, precision, F1 and AUC are in per cent.

    Examples
    --------
    >>> points, scores = np.zeros((4, 2)), np.array([0.3, 0.6, 0.4, 0.7])
    >>> detection = Detection("imforest", None, points, np.array([False, False, True, True]), scores, {"0.5": 0.5})
    >>> (row,) = rows_of("1", "moons", detection, seed=0)
    >>> [row[name] for name in ("flagged", "true_positives", "false_positives", "false_negatives", "f1", "auc")]
    [2, 1, 1, 1, 50.0, 75.0]
    """
    common = {"figure": figure, "set": name, "method": detection.method, "step": detection.step, "seed": seed}
    area = auc(detection.is_outlier, detection.scores)
    return [
        common | {"rule": rule, "threshold": threshold} | _counts(detection, threshold) | {"auc": area}
        for rule, threshold in detection.thresholds.items()
    ]


def _counts(detection: Detection, threshold: float) -> dict[str, Any]:
    """Return the counts and ratios for one threshold; the precision is None if no row is flagged."""
    is_flagged, is_outlier = detection.scores > threshold, detection.is_outlier
    flagged, outliers = int(is_flagged.sum()), int(is_outlier.sum())
    found = int((is_flagged & is_outlier).sum())
    return {
        "n_rows": is_flagged.size,
        "flagged": flagged,
        "true_positives": found,
        "false_positives": flagged - found,
        "false_negatives": outliers - found,
        "recall": 100.0 * found / outliers,
        "precision": 100.0 * found / flagged if flagged > 0 else None,
        "f1": 200.0 * found / (flagged + outliers),
    }


class Claim(NamedTuple):
    """A statement of the paper that compares two results, each given by figure, method and rule."""

    text: str
    this: tuple[str, str, str]
    that: tuple[str, str, str]
    measures: tuple[str, ...]


CLAIMS = (
    Claim(
        "batch: 0.5 and K-means are almost the same",
        (BATCH_FIGURE, "imforest", HALF),
        (BATCH_FIGURE, "imforest", K_MEANS),
        ("flagged", "f1"),
    ),
    Claim(
        "batch: iMForest has far fewer false negatives than iForest",
        (BATCH_FIGURE, "imforest", HALF),
        (BATCH_FIGURE, "iforest", HALF),
        ("false_negatives", "false_positives", "auc"),
    ),
    Claim(
        "online: K-means works better than 0.5",
        (ONLINE_FIGURE, "imforest", K_MEANS),
        (ONLINE_FIGURE, "imforest", HALF),
        ("false_negatives", "false_positives", "f1"),
    ),
)


def claims(names: Sequence[str], seeds: Sequence[int], progress: StepProgress) -> list[Row]:
    """Test the statements that the paper makes about its figures, with sets of many seeds.

    For each claim, measure and set, a row has the means of both sides and of their difference, and the standard
    deviation of the difference, over the seeds; online results are first averaged over the steps.
    """
    rows: list[Row] = []
    for n_done, seed in enumerate(seeds, 1):
        for figure, name in product(FIGURES, names):
            detections = FIGURES[figure](make_synthetic(name, seed), seed)
            rows += [row for detection, _ in detections for row in rows_of(figure, name, detection, seed)]
        progress(f"synthetic: claims, seed {seed}", n_done / len(seeds))
    sets = dict.fromkeys(row["set"] for row in rows)
    return [_compare(rows, claim, name, measure) for claim in CLAIMS for measure in claim.measures for name in sets]


def _compare(rows: Sequence[Row], claim: Claim, name: str, measure: str) -> Row:
    this, that = (_by_seed(rows, side, name, measure) for side in (claim.this, claim.that))
    return {
        "claim": claim.text,
        "set": name,
        "measure": measure,
        "this": ", ".join(claim.this[1:]),
        "that": ", ".join(claim.that[1:]),
        "this_mean": float(this.mean()),
        "that_mean": float(that.mean()),
        "difference": float((this - that).mean()),
        "deviation": float((this - that).std(ddof=1)) if this.size > 1 else 0.0,
        "seeds": this.size,
    }


def _by_seed(rows: Sequence[Row], side: tuple[str, str, str], name: str, measure: str) -> Array:
    """Return the measure for each seed, averaged over the steps."""
    figure, method, rule = side
    key = {"figure": figure, "method": method, "rule": rule, "set": name}
    selected = [row for row in rows if key.items() <= row.items()]
    seeds = dict.fromkeys(row["seed"] for row in selected)
    return np.array([np.mean([row[measure] for row in selected if row["seed"] == seed]) for seed in seeds])
