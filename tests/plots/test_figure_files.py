"""Figure files: the same input gives the same bytes, and matplotlib's global state is unchanged."""

from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from imondrian import MondrianForest, plots
from imondrian.base.errors import InvalidInputError
from imondrian.plots import (
    Surface,
    grid_over,
    plot_explanations,
    plot_partition,
    plot_regions,
    plot_scatter,
    plot_scores,
    plot_timeline,
    plot_tree,
    write_figure,
)
from tests.plots.figure_checks import written

POINTS = np.random.default_rng(0).normal(size=(30, 2))
FOREST = MondrianForest(5).build(POINTS)
SCORES = FOREST.score(POINTS)
GRID = grid_over(POINTS, n=20)
FIGURES = {
    "scores": lambda: plot_scores(SCORES, {"a": 0.5, "b": 0.6}, "a"),
    "timeline": lambda: plot_timeline(SCORES, 0.5),
    "many rows": lambda: plot_timeline(np.tile(SCORES, 700), 0.5),
    "regions": lambda: plot_regions(
        POINTS, SCORES > 0.5, Surface(*GRID[:2], FOREST.score(GRID.nodes).reshape(20, 20)), 0.5
    ),
    "partition": lambda: plot_partition(next(FOREST.trees()), POINTS),
    "tree": lambda: plot_tree(next(FOREST.trees())),
    "explanations": lambda: plot_explanations(FOREST.explain(POINTS), ["x", "y"]),
    "scatter": lambda: plot_scatter(POINTS, SCORES > 0.5),
}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_the_same_input_gives_the_same_bytes(figure):
    once = written(figure(), "svg")
    assert once.startswith(b"<?xml")
    assert once == written(figure(), "svg")
    assert len(once) < 500_000  # however many rows there are


@pytest.mark.parametrize("name", ["scatter", "regions"])
def test_the_same_input_gives_the_same_png(name):
    once = written(FIGURES[name](), "png")
    assert once.startswith(b"\x89PNG")
    assert once == written(FIGURES[name](), "png")


def test_writing_a_figure_does_not_change_matplotlibs_settings():
    before = dict(mpl.rcParams)
    written(FIGURES["tree"](), "svg")
    assert dict(mpl.rcParams) == before


def test_pyplot_is_never_imported():
    sources = list(Path(plots.__file__).parent.glob("*.py"))
    assert len(sources) > 10
    assert not [source.name for source in sources if "pyplot" in source.read_text()]


def test_an_unknown_image_format_raises():
    with pytest.raises(InvalidInputError, match=r"kind must be one of \['png', 'svg'\], but is 'pdf'"):
        write_figure(FIGURES["scatter"](), None, "pdf")


def test_characters_that_the_font_lacks_raise_no_warning():
    for kind in ("png", "svg"):
        write_figure(plot_scatter([[0.0, 1.0]], [False], ("温度", "y")), BytesIO(), kind)
