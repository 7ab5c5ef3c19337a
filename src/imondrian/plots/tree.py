"""Plot of a tree as a dendrogram: split times, cuts, and the number of points in each part."""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from imondrian.engine.jit import Array
from imondrian.engine.plain_tree import Tree
from imondrian.forest.inputs import as_count
from imondrian.plots.label_placement import (
    ABOVE_LEFT,
    ABOVE_RIGHT,
    BELOW,
    GAP,
    LabelPosition,
    is_free,
    label_box,
    to_points,
)
from imondrian.plots.labels import fitted_label, text_size
from imondrian.plots.style import GREY, INK, NORMAL, SMALL_SIZE, TEXT_SIZE, add_legend, finish, new_axes
from imondrian.plots.validation import as_names, check_tree

_SKEWED = 8.0  # times that differ by more than this factor are shown on a log axis
_TIMES = (1e-200, 1e200)  # range of the axis; earlier and later splits are drawn at its ends
_MAX_LEVELS = 10_000
_MAX_LABELLED_CUTS = 63
_NAME_WIDTHS = (120.0, 60.0)  # of a feature name, in points; the second is tried if the label has no space otherwise
_POSITIONS = (BELOW, ABOVE_RIGHT, ABOVE_LEFT)


class _Outline(NamedTuple):
    """The layout of the upper levels of a tree; its nodes are the first nodes of the tree."""

    tree: Tree
    inner: Array  # nodes whose cuts are shown
    ends: Array  # leaves and roots of subtrees that are not shown, from left to right
    x: Array
    y: Array


def plot_tree(
    tree: Tree,
    names: Sequence[str] | None = None,
    *,
    levels: int = 5,
    axes: Axes | None = None,
) -> Figure:
    """Plot the upper levels of a tree, each node at its split time, the earliest at the top.

    The number of points in each leaf or subtree is written below it. A number, or the label of a cut, is left out if
    there is no space for it.

    Parameters
    ----------
    tree : Tree
        One of ``forest.trees()``.
    names : sequence of names, optional
        Names of the features; by default x0, x1, and so on.
    levels : int, default=5
        Number of levels of cuts to show; a subtree below them is drawn as one marker.
    axes : Axes, optional
        The axes to draw on; by default those of a new figure.

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
    n_features, n_levels = check_tree(tree), as_count(levels, "levels", 0, _MAX_LEVELS)
    listed = [f"x{j}" for j in range(n_features)] if names is None else as_names(names, n_features)
    axes = new_axes(9.0, 5.0) if axes is None else axes
    outline = _outline(axes, tree, n_levels)
    lines = _segments(outline, axes.get_ylim()[1])
    thickness = float(np.clip(60.0 / outline.ends.size, 0.5, 1.2))
    axes.add_collection(LineCollection(list(lines), colors=GREY, linewidths=thickness))
    add_legend(axes, _draw_ends(axes, outline))
    _write_populations(axes, outline)
    _write_cuts(axes, outline, listed, lines)
    axes.spines["bottom"].set_visible(False)
    return finish(axes, "points in each leaf or subtree", "split time")


def _outline(axes: Axes, tree: Tree, levels: int) -> _Outline:
    """Lay out the nodes down to a level, and set the limits of the axes."""
    n_nodes = np.count_nonzero(tree.depth <= levels)  # nodes are stored level by level, so these are the first
    is_end = (tree.left[:n_nodes] < 0) | (tree.depth[:n_nodes] == levels)
    inner = np.flatnonzero(~is_end)
    x = _x_coordinates(tree, is_end)
    ends = np.flatnonzero(is_end)[np.argsort(x[is_end])]
    y = np.clip(tree.split_time[:n_nodes], *_TIMES)
    y[is_end] = _set_times(axes, y[inner])
    axes.set_xlim(-0.6, ends.size - 0.4)
    return _Outline(tree, inner, ends, x, y)


def _x_coordinates(tree: Tree, is_end: Array) -> Array:
    """Return the x coordinates: ends are numbered from left to right, each node is above the middle of its children."""
    n_ends: Array = is_end.astype(np.int64)
    x = np.zeros(is_end.size)
    for child in range(is_end.size - 1, 0, -1):  # children before their parent
        n_ends[tree.parent[child]] += n_ends[child]
    inner = np.flatnonzero(~is_end)
    for node in inner:
        left, right = tree.left[node], tree.right[node]
        x[left], x[right] = x[node], x[node] + n_ends[left]
    for node in inner[::-1]:
        x[node] = (x[tree.left[node]] + x[tree.right[node]]) / 2.0
    return x


def _set_times(axes: Axes, times: Array) -> float:
    """Set a downward time axis, logarithmic if the times are skewed; return the time at the bottom."""
    first, last = (times.min(), times.max()) if times.size > 0 else (1.0, 1.0)
    top, bottom = 0.0, 1.15 * last
    if last > _SKEWED * first:
        axes.set_yscale("log")
        margin = 10.0 ** (0.08 * (np.log10(last) - np.log10(first)))
        top, bottom = first / margin, last * margin
    axes.set_ylim(bottom, top)
    return float(bottom)


def _segments(outline: _Outline, top: float) -> Array:
    """Return both ends of all lines: a bar per cut, and a stem per node; the stem of the root starts at the top."""
    tree, inner, _, x, y = outline
    bars = [[x[tree.left[inner]], y[inner]], [x[tree.right[inner]], y[inner]]]
    above = np.where(np.arange(x.size) == 0, top, y[tree.parent[: x.size]])
    stems = [[x, above], [x, y]]
    return np.concatenate([np.array(lines).transpose(2, 0, 1) for lines in (bars, stems)])


def _draw_ends(axes: Axes, outline: _Outline) -> list[Artist]:
    """Draw markers for the leaves and for the subtrees that are not shown."""
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
    """Write the number of points below each marker, from left to right, where it fits."""
    ends, x = outline.ends, outline.x
    centres = to_points(axes, np.column_stack([x, outline.y]))[:, 0]
    ticks, occupied = {}, -np.inf
    for node in ends:
        label = f"{outline.tree.population[node]:,}"
        half = text_size(label, TEXT_SIZE)[0] / 2.0 if centres[node] > occupied else np.inf
        if centres[node] - half >= occupied:
            occupied = centres[node] + half + GAP
            ticks[float(x[node])] = label
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(axis="x", length=0, pad=8)


def _write_cuts(axes: Axes, outline: _Outline, names: list[Any], lines: Array) -> None:
    """Label the cuts level by level, where a label touches neither a line nor another label."""
    nodes = np.column_stack([outline.x, outline.y])
    corners, marks = to_points(axes, lines.reshape(-1, 2)).reshape(-1, 2, 2), to_points(axes, nodes[outline.ends])
    occupied = np.vstack([np.hstack([corners.min(axis=1), corners.max(axis=1)]), np.hstack([marks - GAP, marks + GAP])])
    for node in outline.inner[:_MAX_LABELLED_CUTS]:
        texts = [(text, text_size(text, SMALL_SIZE)) for text in _texts(outline.tree, node, names)]
        for (text, size), position in product(texts, _POSITIONS):
            box = label_box(size, to_points(axes, nodes[node]), position)
            if is_free(box, occupied, axes):
                occupied = np.vstack([occupied, box])
                _write(axes, text, nodes[node], position)
                break


def _texts(tree: Tree, node: int, names: list[Any]) -> list[str]:
    """Return the label of a cut, and a shorter one if the feature name can be abbreviated."""
    name, value = names[tree.split_feature[node]], f"{tree.split_value[node]:.4g}"
    labels = dict.fromkeys(fitted_label(name, width, SMALL_SIZE) for width in _NAME_WIDTHS)
    return [f"{label} < {value}" for label in labels]


def _write(axes: Axes, text: str, point: Array, position: LabelPosition) -> None:
    axes.annotate(
        text,
        (point[0], point[1]),
        (position.right, position.up),
        textcoords="offset points",
        ha=position.horizontal,
        va=position.vertical,
        fontsize=SMALL_SIZE,
        color=INK,
    )
