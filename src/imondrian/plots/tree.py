"""Picture of a tree as a dendrogram: when it parts its points, by which cuts, and how many lie where."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from imondrian.engine.jit import Array
from imondrian.engine.view import Tree
from imondrian.inputs import as_count
from imondrian.plots.checks import as_names, check_tree
from imondrian.plots.lettering import label_of, text_size
from imondrian.plots.placing import ABOVE_LEFT, ABOVE_RIGHT, BELOW, GAP, Spot, box_of, in_points, is_free
from imondrian.plots.style import GREY, INK, NORMAL, SMALL_SIZE, TEXT_SIZE, finished, new_axes, put_legend

_SKEWED = 8.0  # times that differ by more than this factor are shown by their logarithms
_TIMES = (1e-200, 1e200)  # what an axis can show; splits before and after are drawn at its ends
_MOST_LEVELS = 10_000
_MOST_CUTS = 63  # that are tried to be written
_WIDEST_NAMES = (120.0, 60.0)  # of the features in points: if the one does not fit, the other is tried
_SPOTS = (BELOW, ABOVE_RIGHT, ABOVE_LEFT)


class _Outline(NamedTuple):
    """The upper levels of a tree, laid out; the nodes are the first ones of the tree."""

    tree: Tree
    inner: Array  # nodes whose cuts are shown
    ends: Array  # leaves and the tops of subtrees that are not shown, from left to right
    x: Array
    y: Array


def plot_tree(
    tree: Tree,
    names: Sequence[str] | None = None,
    *,
    levels: int = 5,
    axes: Axes | None = None,
) -> Figure:
    """Draw the upper levels of a tree, each node at the time of its split, the earliest at the top.

    Below them stand the numbers of points. Cuts and numbers are written as far as there is room for them.

    Parameters
    ----------
    tree : Tree
        One of ``forest.trees()``.
    names : sequence of names, optional
        Of the features; by default x0, x1, and so on.
    levels : int, default=5
        How many cuts are shown one below the other; what is parted by later ones is one mark.
    axes : Axes, optional
        Where to draw; on a figure of its own by default.

    Returns
    -------
    Figure

    Examples
    --------
    >>> from imondrian import MondrianForest
    >>> tree = next(MondrianForest(1).build([[0.0], [1.0], [9.0]]).trees())
    >>> figure = plot_tree(tree, ["length"], levels=1)
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]  # points on either side of the first cut
    ['2', '1']
    """
    n_features, n_levels = check_tree(tree), as_count(levels, "levels", 0, _MOST_LEVELS)
    listed = [f"x{j}" for j in range(n_features)] if names is None else as_names(names, n_features)
    axes = new_axes(9.0, 5.0) if axes is None else axes
    outline = _outline(axes, tree, n_levels)
    lines = _segments(outline, axes.get_ylim()[1])
    thickness = float(np.clip(60.0 / outline.ends.size, 0.5, 1.2))
    axes.add_collection(LineCollection(list(lines), colors=GREY, linewidths=thickness))
    put_legend(axes, _draw_ends(axes, outline))
    _write_populations(axes, outline)
    _write_cuts(axes, outline, listed, lines)
    axes.spines["bottom"].set_visible(False)
    return finished(axes, "points in each leaf or subtree", "split time")


def _outline(axes: Axes, tree: Tree, levels: int) -> _Outline:
    """Lay out the nodes down to a level, and set the axes for them."""
    n_nodes = np.count_nonzero(tree.depth <= levels)  # level by level: these are the first
    is_end = (tree.left[:n_nodes] < 0) | (tree.depth[:n_nodes] == levels)
    inner = np.flatnonzero(~is_end)
    x = _places(tree, is_end)
    ends = np.flatnonzero(is_end)[np.argsort(x[is_end])]
    y = np.clip(tree.split_time[:n_nodes], *_TIMES)
    y[is_end] = _set_times(axes, y[inner])
    axes.set_xlim(-0.6, ends.size - 0.4)
    return _Outline(tree, inner, ends, x, y)


def _places(tree: Tree, is_end: Array) -> Array:
    """Count the ends from left to right, and set each node above the middle of its children."""
    n_ends: Array = is_end.astype(np.int64)
    x = np.zeros(is_end.size)
    for child in range(is_end.size - 1, 0, -1):  # each before its parent
        n_ends[tree.parent[child]] += n_ends[child]
    inner = np.flatnonzero(~is_end)
    for node in inner:
        left, right = tree.left[node], tree.right[node]
        x[left], x[right] = x[node], x[node] + n_ends[left]
    for node in inner[::-1]:
        x[node] = (x[tree.left[node]] + x[tree.right[node]]) / 2.0
    return x


def _set_times(axes: Axes, times: Array) -> float:
    """Let time run downwards, by its logarithm if the times are skewed; give the time at the bottom."""
    first, last = (times.min(), times.max()) if times.size > 0 else (1.0, 1.0)
    top, bottom = 0.0, 1.15 * last
    if last > _SKEWED * first:
        axes.set_yscale("log")
        beyond = 10.0 ** (0.08 * (np.log10(last) - np.log10(first)))
        top, bottom = first / beyond, last * beyond
    axes.set_ylim(bottom, top)
    return float(bottom)


def _segments(outline: _Outline, top: float) -> Array:
    """Give the ends of all lines: a bar for each cut, a stem for each node, that of the root from the top."""
    tree, inner, _, x, y = outline
    bars = [[x[tree.left[inner]], y[inner]], [x[tree.right[inner]], y[inner]]]
    above = np.where(np.arange(x.size) == 0, top, y[tree.parent[: x.size]])
    stems = [[x, above], [x, y]]
    return np.concatenate([np.array(lines).transpose(2, 0, 1) for lines in (bars, stems)])


def _draw_ends(axes: Axes, outline: _Outline) -> list[Artist]:
    """Mark the leaves and the subtrees that are not shown."""
    tree, _, ends, x, y = outline
    is_leaf = tree.left[ends] < 0
    area = float(np.clip(1500.0 / ends.size, 4.0, 50.0))
    return [
        axes.scatter(
            x[nodes], y[nodes], s=area, c=colour, marker=marker, clip_on=False, zorder=3, label=f"{word}: {nodes.size}"
        )
        for nodes, colour, marker, word in (
            (ends[is_leaf], NORMAL.colour, "o", "leaves"),
            (ends[~is_leaf], INK, "^", "subtrees not shown"),
        )
        if nodes.size > 0
    ]


def _write_populations(axes: Axes, outline: _Outline) -> None:
    """Write the number of points below each mark, from left to right as there is room."""
    ends, x = outline.ends, outline.x
    places = in_points(axes, np.column_stack([x, outline.y]))[:, 0]
    ticks, taken = {}, -np.inf
    for node in ends:
        label = f"{outline.tree.population[node]:,}"
        half = text_size(label, TEXT_SIZE)[0] / 2.0 if places[node] > taken else np.inf
        if places[node] - half >= taken:
            taken = places[node] + half + GAP
            ticks[float(x[node])] = label
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="x", length=0, pad=8)


def _write_cuts(axes: Axes, outline: _Outline, names: list[Any], lines: Array) -> None:
    """Write the cuts level by level, each where it touches neither a line nor another cut."""
    places = np.column_stack([outline.x, outline.y])
    corners, marks = in_points(axes, lines.reshape(-1, 2)).reshape(-1, 2, 2), in_points(axes, places[outline.ends])
    taken = np.vstack([np.hstack([corners.min(axis=1), corners.max(axis=1)]), np.hstack([marks - GAP, marks + GAP])])
    for node in outline.inner[:_MOST_CUTS]:
        texts = [(text, text_size(text, SMALL_SIZE)) for text in _texts(outline.tree, node, names)]
        for (text, size), spot in product(texts, _SPOTS):
            box = box_of(size, in_points(axes, places[node]), spot)
            if is_free(box, taken, axes):
                taken = np.vstack([taken, box])
                _write(axes, text, places[node], spot)
                break


def _texts(tree: Tree, node: int, names: list[Any]) -> list[str]:
    """Give the cut of a node in full, and shorter if it can be cut."""
    name, value = names[tree.split_feature[node]], f"{tree.split_value[node]:.4g}"
    labels = dict.fromkeys(label_of(name, width, SMALL_SIZE) for width in _WIDEST_NAMES)
    return [f"{label} < {value}" for label in labels]


def _write(axes: Axes, text: str, place: Array, spot: Spot) -> None:
    axes.annotate(
        text,
        (place[0], place[1]),
        (spot.right, spot.up),
        textcoords="offset points",
        ha=spot.horizontal,
        va=spot.vertical,
        fontsize=SMALL_SIZE,
        color=INK,
    )
