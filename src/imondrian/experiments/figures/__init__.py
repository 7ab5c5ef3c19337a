"""Pictures of the experiments: what a run has given goes in, a matplotlib figure comes out."""

from imondrian.experiments.figures.planes import batch_figure, online_figure
from imondrian.experiments.figures.quality import quality_figure
from imondrian.experiments.figures.stages import stages_figure

__all__ = ["batch_figure", "online_figure", "quality_figure", "stages_figure"]
