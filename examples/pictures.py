"""The image of the README: the partition of a tree, and the scores of a forest over the plane.

python examples/pictures.py docs/images
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from imondrian import IsolationMondrianForest
from imondrian.datasets import make_synthetic
from imondrian.plots import Surface, grid_over, plot_partition, plot_regions, write_figure


def main(folder: Path) -> None:
    """Draw two moons with noise: the partition of a tree, and the normal region."""
    points = make_synthetic("moons").X
    model = IsolationMondrianForest(contamination=0.15, random_state=0).fit(points)
    grid = grid_over(points)
    surface = Surface(grid.x, grid.y, -model.score_samples(grid.nodes).reshape(len(grid.y), len(grid.x)))
    figure = Figure(figsize=(13.0, 5.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    tree = next(model.forest_.trees())
    plot_partition(tree, tree.lower[tree.left < 0], axes=left)
    plot_regions(points, model.predict(points) == -1, surface, -model.offset_, axes=right)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "moons.png").open("wb") as file:
        write_figure(figure, file, "png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
