"""Figures 1 and 2 of the paper: what forests make of four sets in the plane, at once and in five steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from imondrian.datasets import Dataset, make_synthetic
from imondrian.engine.jit import Array
from imondrian.experiments.detector_protocol import Detector
from imondrian.experiments.methods import BATCH, ONLINE
from imondrian.experiments.ranking_metrics import auc
from imondrian.experiments.repeats import Progress, Row
from imondrian.experiments.splits import stratified_stages
from imondrian.plots import Grid, Surface, grid_over
from imondrian.thresholds import fixed, two_means

BATCH_FIGURE, ONLINE_FIGURE = "1", "2"
HALF, K_MEANS = "0.5", "K-means"
RULES = {HALF: fixed(0.5), K_MEANS: two_means}
IN_THE_BATCH_FIGURE = {"imforest": (HALF, K_MEANS), "iforest": (HALF,), "size-std": (K_MEANS,)}  # the last is ours
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
_MARGIN = 0.05  # of the plane around the points, as a share of their width


class Verdict(NamedTuple):
    """What a method says of the rows it has learned.

    Attributes
    ----------
    method : str
    step : int or None
        The t of Figure 2; None where all rows were learned at once.
    points : array of shape (n_rows, 2)
    is_outlier : array of bool, shape (n_rows,)
        The truth.
    scores : array of shape (n_rows,)
    thresholds : dict of float
        For each rule the score above which a row is an anomaly.
    """

    method: str
    step: int | None
    points: Array
    is_outlier: Array
    scores: Array
    thresholds: Mapping[str, float]


class View(NamedTuple):
    """A verdict, and the scores of the plane by which it came about."""

    verdict: Verdict
    surface: Surface


class Scene(NamedTuple):
    """A set, and how it is seen: in Figure 1 by each method, in Figure 2 at each step."""

    name: str
    views: tuple[View, ...]


class Synthetic(NamedTuple):
    """All that the two figures show, a row for each verdict and rule, and for each claim what many seeds say."""

    batch: list[Scene]
    online: list[Scene]
    rows: list[Row]
    claims: list[Row]


def run(names: Sequence[str], seed: int, seeds: Sequence[int], progress: Progress, n_places: int = 120) -> Synthetic:
    """Run both figures on sets of one seed, and hold what the paper claims of them against those of many.

    Parameters
    ----------
    names : sequence of str
        Of synthetic sets.
    seed : int
        Of the sets and forests that are drawn.
    seeds : sequence of int
        Of those that the claims are held against.
    tell : callable
        Is told what has been done, and the share of all that is done.
    n_places : int, default=120
        Places along each axis of the plane at which scores are taken.

    Examples
    --------
    >>> result = run(["blob"], seed=0, seeds=[], progress=lambda *_: None, n_places=20)
    >>> [view.verdict.method for view in result.batch[0].views], [view.verdict.step for view in result.online[0].views]
    (['imforest', 'iforest', 'size-std'], [1, 2, 3, 4, 5])
    """
    sets = [make_synthetic(name, seed) for name in names]
    n_cells = 2 * len(sets) + len(seeds)
    plane = grid_over(np.concatenate([data.X for data in sets]), n_places, _MARGIN)
    scenes: dict[str, list[Scene]] = {figure: [] for figure in FIGURES}
    rows: list[Row] = []
    for n_done, (figure, data) in enumerate(product(FIGURES, sets), 1):
        views = [View(verdict, _surface(detector, plane)) for verdict, detector in FIGURES[figure](data, seed)]
        scenes[figure].append(Scene(data.name, tuple(views)))
        rows += [row for view in views for row in rows_of(figure, data.name, view.verdict, seed)]
        progress(f"synthetic: figure {figure}, {data.name}", n_done / n_cells)
    table = claims(names, seeds, lambda word, share: progress(word, 1.0 - (1.0 - share) * len(seeds) / n_cells))
    return Synthetic(scenes[BATCH_FIGURE], scenes[ONLINE_FIGURE], rows, table)


def batch_verdicts(data: Dataset, seed: int) -> Iterator[tuple[Verdict, Detector]]:
    """Give what each method of Figure 1 says of a set that it has learned at once, and the method as it is then.

    The paper's forest holds samples of 256 and scores by depth, unscaled; iForest has the defaults of scikit-learn.
    Beside them, ours: the score "size", with features weighted by their deviations.
    """
    for name in IN_THE_BATCH_FIGURE:
        detector = BATCH[name].make(seed).fit(data.X)
        yield _verdict(name, None, data, np.arange(len(data.X)), detector), detector


def online_verdicts(data: Dataset, seed: int) -> Iterator[tuple[Verdict, Detector]]:
    """Give what the paper's forest says after each of five steps of all rows so far, and the forest as it is then."""
    detector = ONLINE["imforest"].make(seed)
    so_far = np.empty(0, dtype=np.int64)
    for step, places in enumerate(stratified_stages(data, seed), 1):
        so_far = np.concatenate([so_far, places])
        (detector.fit if step == 1 else detector.extend)(data.X[places])
        yield _verdict("imforest", step, data, so_far, detector), detector


FIGURES: dict[str, Callable[[Dataset, int], Iterator[tuple[Verdict, Detector]]]] = {
    BATCH_FIGURE: batch_verdicts,
    ONLINE_FIGURE: online_verdicts,
}


def _verdict(method: str, step: int | None, data: Dataset, places: Array, detector: Detector) -> Verdict:
    scores = detector.learned_scores()
    thresholds = {name: rule(scores) for name, rule in RULES.items()}
    return Verdict(method, step, data.X[places], data.y[places] == 1, scores, thresholds)


def _surface(detector: Detector, plane: Grid) -> Surface:
    return Surface(plane.x, plane.y, detector.score(plane.nodes).reshape(plane.y.size, plane.x.size))


def rows_of(figure: str, name: str, verdict: Verdict, seed: int) -> list[Row]:
    """Count what each rule gets right and wrong; recall, precision, F1 and AUC are in per cent.

    Examples
    --------
    >>> points, scores = np.zeros((4, 2)), np.array([0.3, 0.6, 0.4, 0.7])
    >>> verdict = Verdict("imforest", None, points, np.array([False, False, True, True]), scores, {"0.5": 0.5})
    >>> (row,) = rows_of("1", "moons", verdict, seed=0)
    >>> [row[name] for name in ("flagged", "true_positives", "false_positives", "false_negatives", "f1", "auc")]
    [2, 1, 1, 1, 50.0, 75.0]
    """
    common = {"figure": figure, "set": name, "method": verdict.method, "step": verdict.step, "seed": seed}
    area = auc(verdict.is_outlier, verdict.scores)
    return [
        common | {"rule": rule, "threshold": threshold} | _counts(verdict, threshold) | {"auc": area}
        for rule, threshold in verdict.thresholds.items()
    ]


def _counts(verdict: Verdict, threshold: float) -> dict[str, Any]:
    """Count rows; without any that is flagged there is no precision."""
    is_flagged, is_outlier = verdict.scores > threshold, verdict.is_outlier
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
    """What the paper says of two kinds of rows, each given by figure, method and rule; and what to compare them by."""

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
        "batch: iMForest has much fewer false negatives than iForest",
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


def claims(names: Sequence[str], seeds: Sequence[int], progress: Progress) -> list[Row]:
    """Hold what the paper reads off its figures against the sets of many seeds.

    For each claim and set there is the mean of both sides, of their difference, and its standard deviation, over the
    seeds; what is online counts by its mean over the steps.
    """
    rows: list[Row] = []
    for n_done, seed in enumerate(seeds, 1):
        for figure, name in product(FIGURES, names):
            verdicts = FIGURES[figure](make_synthetic(name, seed), seed)
            rows += [row for verdict, _ in verdicts for row in rows_of(figure, name, verdict, seed)]
        progress(f"synthetic: claims, seed {seed}", n_done / len(seeds))
    drawn = dict.fromkeys(row["set"] for row in rows)
    return [_compared(rows, claim, name, measure) for claim in CLAIMS for measure in claim.measures for name in drawn]


def _compared(rows: Sequence[Row], claim: Claim, name: str, measure: str) -> Row:
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
    """Give the measure for each seed, averaged over the steps."""
    figure, method, rule = side
    wanted = {"figure": figure, "method": method, "rule": rule, "set": name}
    chosen = [row for row in rows if wanted.items() <= row.items()]
    seeds = dict.fromkeys(row["seed"] for row in chosen)
    return np.array([np.mean([row[measure] for row in chosen if row["seed"] == seed]) for seed in seeds])
