"""Pictures of scores, trees and reasons: arrays in, a matplotlib figure out.

Legends stand above the axes: a title belongs to the figure, ``figure.suptitle(...)``.
"""

from imondrian.plots.pair import plot_pair
from imondrian.plots.partition import plot_partition
from imondrian.plots.reasons import plot_reasons
from imondrian.plots.regions import Grid, Surface, grid_over, plot_regions
from imondrian.plots.scores import plot_scores
from imondrian.plots.timeline import plot_timeline
from imondrian.plots.tree import plot_tree
from imondrian.plots.writing import write_figure

__all__ = [
    "Grid",
    "Surface",
    "grid_over",
    "plot_pair",
    "plot_partition",
    "plot_reasons",
    "plot_regions",
    "plot_scores",
    "plot_timeline",
    "plot_tree",
    "write_figure",
]
