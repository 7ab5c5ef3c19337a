"""Pictures of the experiments: what a run has given goes in, a matplotlib figure comes out."""

from imondrian.experiments.figures.plane_figures import batch_figure, online_figure
from imondrian.experiments.figures.quality_figure import quality_figure
from imondrian.experiments.figures.stages_figure import stages_figure

__all__ = ["batch_figure", "online_figure", "quality_figure", "stages_figure"]
