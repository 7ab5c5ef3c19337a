"""Figures of the experiments: results of a run in, a matplotlib figure out."""

from imondrian.experiments.figures.plane_figures import batch_figure, online_figure
from imondrian.experiments.figures.quality_figure import quality_figure
from imondrian.experiments.figures.stages_figure import stages_figure

__all__ = ["batch_figure", "online_figure", "quality_figure", "stages_figure"]
