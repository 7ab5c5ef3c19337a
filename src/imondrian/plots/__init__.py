"""Plots of scores, trees, explanations and series.

Each function ``plot_*`` accepts arrays or a tree, and returns a matplotlib figure. Legends are placed above the axes,
so set a title on the figure, not on the axes: ``figure.suptitle(...)``.
"""

from imondrian.plots.explanation_bars import plot_explanations
from imondrian.plots.figure_files import write_figure
from imondrian.plots.partition import plot_partition
from imondrian.plots.regions import Grid, Surface, grid_over, plot_regions
from imondrian.plots.scatter import plot_scatter
from imondrian.plots.score_histogram import plot_scores
from imondrian.plots.series import Band, Surprises, plot_series
from imondrian.plots.timeline import plot_timeline
from imondrian.plots.tree import plot_tree

__all__ = [
    "Band",
    "Grid",
    "Surface",
    "Surprises",
    "grid_over",
    "plot_explanations",
    "plot_partition",
    "plot_regions",
    "plot_scatter",
    "plot_scores",
    "plot_series",
    "plot_timeline",
    "plot_tree",
    "write_figure",
]
