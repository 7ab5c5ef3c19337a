"""The picture of the README: what a tree does to points, and what a forest says of the plane.

python examples/pictures.py docs/images
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_moons

from imondrian import IsolationMondrianForest
from imondrian.plots import Surface, grid_over, plot_partition, plot_regions, write_figure


def main(folder: Path) -> None:
    """Draw two moons among strays: the partition of a tree, and the region that is normal."""
    points = two_moons()
    model = IsolationMondrianForest(score="size", scale="std", contamination=0.15, random_state=0).fit(points)
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


def two_moons() -> np.ndarray:
    """Give the points of the paper's first synthetic set: two moons, and 45 strays around them."""
    moons, _ = make_moons(255, noise=0.08, random_state=0)
    strays = np.random.default_rng(0).uniform(-6.0, 6.0, size=(45, 2))
    return np.vstack([2.2 * moons - [1.0, 0.5], strays])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
