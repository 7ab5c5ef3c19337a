"""`imondrian plot`: images in the right format, from data or a model."""

import xml.etree.ElementTree as ET

import pytest


@pytest.mark.parametrize("kind", ["scores", "regions", "partition", "tree"])
def test_every_plot_writes_a_png(fitted, tmp_path, kind):
    path = tmp_path / "plot.png"
    assert fitted.run("plot", kind, "data.csv", "--features", "a,b", "-o", path).stdout == f"{path}\n"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_tree_of_a_model_can_be_plotted_as_svg(fitted, tmp_path):
    path = tmp_path / "tree.svg"
    fitted.run("plot", "tree", "data.csv", "--model", "model.imf", "--tree", "3", "--levels", "4", "-o", path, "-q")
    assert ET.parse(path).getroot().tag.endswith("svg")  # noqa: S314


def test_options_that_a_model_sets_are_refused(fitted):
    for option in (("--threshold", "0.2"), ("--features", "a,b"), ("--trees", "5")):
        assert "--model sets the features" in fitted.fails(
            "plot", "scores", "data.csv", "--model", "model.imf", *option
        )


def test_impossible_plots_give_a_one_line_error(shell):
    assert "needs two features, but there are 3" in shell.fails("plot", "regions", "data.csv")
    assert "no tree 100; trees are numbered 0 to 99" in shell.fails("plot", "tree", "data.csv", "--tree", "100")
    assert "must end in .png or .svg" in shell.fails("plot", "tree", "data.csv", "-o", "x.gif")
    assert "none.imf: file not found" in shell.fails("plot", "tree", "data.csv", "--model", "none.imf")
