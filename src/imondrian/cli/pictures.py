"""Pictures of rows that have been scored."""

import numpy as np
from matplotlib.figure import Figure

from imondrian.cli.rows import Rows
from imondrian.engine.jit import Array
from imondrian.plots import Surface, grid_over, plot_regions
from imondrian.scorer import Scorer
from imondrian.thresholds import two_means


def thresholds_of(scorer: Scorer, scores: Array) -> tuple[dict[str, float], str]:
    """Give the thresholds of all rules for a picture, and the name of the one in use."""
    names = {"auto": "0.5", "kmeans": "two clusters"}
    chosen = names.get(scorer.rule) or f"oddest {100 * scorer.rule:.3g} %"
    limits = {names["auto"]: 0.5, names["kmeans"]: two_means(scores[np.isfinite(scores)])}
    return {**limits, chosen: scorer.threshold}, chosen


def picture_of_regions(rows: Rows, scorer: Scorer, scores: Array) -> Figure:
    """Draw the score of every place around rows of two features, and what is normal."""
    points = rows.points[rows.usable]
    grid = grid_over(points)
    surface = Surface(grid.x, grid.y, scorer.scores(grid.nodes).reshape(len(grid.y), len(grid.x)))
    is_anomaly = scores[rows.usable] > scorer.threshold
    return plot_regions(points, is_anomaly, surface, scorer.threshold, rows.features)
