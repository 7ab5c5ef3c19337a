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


def test_a_series_is_plotted_with_its_times_and_labels(shell, tmp_path):
    rows = [
        f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00,{i % 24 + 0.1 * (i % 7):.1f},x,{int(i == 390)}" for i in range(480)
    ]
    shell.write("metric.csv", "\n".join(["ts,load,host,label", *rows]))
    options = ("--window", "256", "--trees", "5", "--label", "label")
    done = shell.run("plot", "series", "metric.csv", *options, "-o", "a.svg")
    assert done.stdout == "a.svg\n"
    assert "times: column 'ts' (use --time to choose another)\nvalues: load; left out: host" in done.stderr
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")  # noqa: S314
    page = shell.run("report", "metric.csv", "--time", "ts", *options, "-o", "r.html")
    assert "a row every 1 h" in page.stdout
    assert "Incidents in metric.csv" in shell.text("r.html")
    shell.run("plot", "series", "metric.csv", "--preset", "practice", "--threshold", "top 5%", "-o", "b.png", "-q")


def test_a_series_that_cannot_be_plotted_gives_a_one_line_error(shell):
    shell.write("text.csv", "t,a\nx,y\nz,y\n")
    shell.write("time.csv", "t,a\nx,1\nz,2\n")
    shell.write("label.csv", "a,b\n1,2\n2,3\n3,1\n")
    assert "no column can be used as a feature" in shell.fails("plot", "series", "text.csv", "-q").lower()
    assert "there is no column 'c'" in shell.fails("plot", "series", "label.csv", "--label", "c", "-q")
    assert "column 'b' contains '2'" in shell.fails("plot", "series", "label.csv", "--label", "b", "-q")
    assert "no value that is recognised as a time" in shell.fails("report", "time.csv", "--time", "t", "-q")
    assert "must end in .html or .htm" in shell.fails("report", "label.csv", "-o", "x.png")


def test_a_picture_of_a_series_needs_neither_a_first_value_nor_times_that_an_axis_can_show(shell):
    rows = [f"{'0001-01-01' if i == 5 else f'2024-01-01 {i // 60:02}:{i % 60:02}'},{i % 7}" for i in range(1, 600)]
    (shell.folder / "far.csv").write_text("\n".join(["ts,v", "2024-01-01 00:00,", *rows]) + "\n")
    shell.run("plot", "series", "far.csv", "--time", "ts", "--side", "v=high", "--trees", "5", "-o", "far.png")
    done = shell.run("report", "far.csv", "--time", "ts", "--side", "v=high", "--trees", "5", "-o", "far.html")
    assert "a row every 1 min, 1 late row" in done.stdout
