"""The pictures of the pages on concepts: a tree, a point that is learned, scores, surprise, and a window.

python examples/concept_pictures.py docs/images
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from imondrian import IsolationMondrianForest, MondrianForest, StreamDetector
from imondrian.plots import plot_partition, plot_tree, write_figure

BLUE, RED, GREY, ORANGE, GREEN = "#1f5fa8", "#c62828", "#777777", "#d98200", "#2e7d32"


def main(folder: Path) -> None:
    """Draw all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "concept-tree": tree_picture,
        "concept-extend": extend_picture,
        "concept-scores": scores_picture,
        "concept-surprise": surprise_picture,
        "concept-window": window_picture,
    }
    for name, draw in pictures.items():
        with (folder / f"{name}.png").open("wb") as file:
            write_figure(draw(), file, "png")


def cluster() -> np.ndarray:
    """Return seven points near each other, and one far away."""
    near = np.random.default_rng(4).normal([2.0, 2.0], 0.9, size=(7, 2))
    return np.vstack([near, [[8.0, 7.0]]])


def tree_picture() -> Figure:
    """Draw the partition of a small tree beside the tree itself."""
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = cluster()
    tree = next(MondrianForest(n_trees=1, seed=8).build(points).trees())
    plot_partition(tree, points, axes=left)
    plot_tree(tree, ["x", "y"], levels=8, axes=right)
    return figure


def extend_picture() -> Figure:
    """Draw the partition of a tree before and after it learns a point far outside its box."""
    figure = Figure(figsize=(11.0, 4.8), layout="constrained")
    forest, points, new = MondrianForest(n_trees=1, seed=3), cluster()[:7], np.array([[8.0, 7.0]])
    forest = forest.build(points)
    for axes, title in zip(figure.subplots(1, 2, sharex=True, sharey=True), ("before", "after"), strict=True):
        tree = next(forest.trees())
        plot_partition(tree, points, axes=axes)
        axes.plot(*new.T, linestyle="", marker="D", color=RED)
        axes.set_xlabel(f"x ({title} the red point is learned)")
        forest, points = forest.extend(new), np.vstack([points, new])
    return figure


def scores_picture() -> Figure:
    """Draw the three scores along a line from the middle of the data to far outside of them."""
    points = np.random.default_rng(0).normal(size=(2_000, 2))
    forest = MondrianForest(max_samples=256, scale="std", seed=0).build(points)
    x = np.linspace(-5.0, 15.0, 400)
    rows = np.column_stack([x, np.zeros_like(x)])
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(
        points[:, 0].min(), points[:, 0].max(), color=GREY, alpha=0.15, linewidth=0.0, label="range of the data"
    )
    for kind, colour, dash in (("depth", BLUE, "-"), ("expected", ORANGE, "--"), ("size", RED, "-.")):
        axes.plot(x, forest.score(rows, kind=kind), color=colour, linestyle=dash, linewidth=2.0, label=kind)
    axes.axhline(0.5, color=GREY, linewidth=0.8)
    axes.set(xlabel="x, in standard deviations", ylabel="score", ylim=(0.3, 1.0))
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return figure


def surprise_picture() -> Figure:
    """Draw the scores of two tables, and the score at which each has a surprise of 3."""
    rng = np.random.default_rng(0)
    tables = {"normal, 2 features": rng.normal(size=(20_000, 2)), "uniform, 20 features": rng.random((20_000, 20))}
    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    for axes, (title, rows) in zip(figure.subplots(2, 1, sharex=True), tables.items(), strict=True):
        model = IsolationMondrianForest(contamination="surprise 3", random_state=0).fit(rows)
        axes.hist(-model.score_samples(rows), bins=np.linspace(0.35, 0.85, 120), color=BLUE, alpha=0.75, log=True)
        axes.axvline(-model.offset_, color=RED, linewidth=2.0)
        side = "right" if -model.offset_ > 0.7 else "left"
        label = f"  surprise 3: score {-model.offset_:.2f}  "
        axes.text(-model.offset_, 0.85, label, color=RED, ha=side, transform=axes.get_xaxis_transform())
        axes.set_ylabel("rows")
        axes.set_title(title, loc="left", fontsize=10.0)
    axes.set_xlabel("score")
    return figure


def window_picture() -> Figure:
    """Draw a stream whose level changes: the change is anomalous until the window has followed it."""
    rng = np.random.default_rng(2)
    values = rng.normal(10.0, 1.0, 4_000)
    values[2_000:] += 9.0
    values[1_200], values[3_500] = 19.0, 10.0
    detector = StreamDetector(n_features=1, window=512, max_samples=256, seed=0)
    results = detector.process_many(values)
    figure = Figure(figsize=(10.0, 5.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    rows, is_anomaly = np.arange(values.size), results.is_anomaly
    upper.plot(rows, values, linestyle="", marker=".", markersize=2.0, color=BLUE, alpha=0.7)
    upper.plot(
        rows[is_anomaly], values[is_anomaly], linestyle="", marker="o", markersize=5.0, color=RED, label="anomalies"
    )
    upper.axvspan(2_488, 3_000, color=GREEN, alpha=0.15, linewidth=0.0, label="the window of row 3,000: 512 rows")
    upper.set_ylabel("value")
    lower.plot(rows, np.minimum(results.surprise, 8.0), color=GREY, linewidth=0.7)
    lower.axhline(3.0, color=RED, linewidth=1.2, label="threshold: surprise 3")
    lower.set(xlabel="row", ylabel="surprise")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]))
