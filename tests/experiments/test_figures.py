"""Figures of the experiments: they show the given results in the given order, and no texts overlap."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_rgba

from imondrian.base.errors import InvalidInputError
from imondrian.datasets.synthetic import SYNTHETIC
from imondrian.experiments import figures, methods
from imondrian.experiments.figures import batch_figure, online_figure, quality_figure, stages_figure
from imondrian.experiments.figures.panels import OUTCOMES
from imondrian.experiments.synthetic_experiment import (
    BATCH_FIGURE_RULES,
    K_MEANS,
    DatasetMaps,
    Detection,
    DetectionMap,
    run,
)
from imondrian.plots import Surface, grid_over
from tests.plots.figure_checks import boxes, written

SMALL = 400_000  # bytes


def map_of(method, step, seed, thresholds):
    """Rows with scores that increase with the distance from the origin."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-5.0, 5.0, (40, 2))
    x, y, nodes = grid_over([[-6.0, -6.0], [6.0, 6.0]], n=12)
    scores = 1.0 - np.exp(-0.03 * np.square(points).sum(axis=1))
    surface = Surface(x, y, (1.0 - np.exp(-0.03 * np.square(nodes).sum(axis=1))).reshape(12, 12))
    return DetectionMap(Detection(method, step, points, rng.random(40) < 0.4, scores, thresholds), surface)


RULES = {"half": 0.5, "third": 0.33}
BATCH = [
    DatasetMaps(name, tuple(map_of(method, None, i, RULES) for method in "ab")) for i, name in enumerate(["one", "two"])
]
ONLINE = [DatasetMaps(name, tuple(map_of("a", t, t, RULES) for t in (1, 2, 3))) for name in ("one", "two")]
SHOWN = {"b": ["third", "half"], "a": ["half"]}


def stage_rows(sets=("wine", "pima"), methods=("lof", "knn"), seeds=(0, 1, 2)):
    return [
        {
            "set": name,
            "method": method,
            "seed": seed,
            "part": str(part),
            "auc": 60.0 + 5 * i + 9 * j + 2 * part + seed**2,
        }
        for i, name in enumerate(sets)
        for j, method in enumerate(methods)
        for seed in seeds
        for part in range(1, 6)
    ]


def quality_rows(values):
    """Rows of `{(mode, method, set): values of the seeds}`."""
    return [
        {"mode": mode, "method": method, "set": name, "seed": seed, "auc": value, "average_precision": 100.0 - value}
        for (mode, method, name), seeds in values.items()
        for seed, value in enumerate(seeds)
    ]


QUALITY = quality_rows(
    {
        (mode, method, name): [50.0 + 10 * i + 3 * j + k, 52.0 + 10 * i + 3 * j + k]
        for k, mode in enumerate(("batch", "novelty"))
        for i, method in enumerate(("lof", "knn", "mine"))
        for j, name in enumerate(("wine", "pima", "wbc"))
    }
)
PUBLISHED = {("lof", "wine"): [70.0, 71.0, 72.0, 73.0, 74.0], ("knn", "pima"): None}
FIGURES = {
    "batch": lambda: batch_figure(BATCH, SHOWN),
    "one set": lambda: batch_figure(BATCH[:1], {"a": ["half"]}),
    "online": lambda: online_figure(ONLINE, "half"),
    "one set online": lambda: online_figure(ONLINE[:1], "half"),
    "stages": lambda: stages_figure(stage_rows(), PUBLISHED),
    "one panel": lambda: stages_figure(stage_rows(["wine"], ["lof"], [0]), {}),
    "many panels": lambda: stages_figure(
        stage_rows([f"set {i}" for i in range(6)], [f"a method {i}" for i in range(12)]), {}
    ),
    "quality": lambda: quality_figure(QUALITY, {"mine"}),
    "one mode": lambda: quality_figure([row for row in QUALITY if row["mode"] == "batch"]),
}


def texts(figure):
    """All texts with their bounding boxes, including those of the figure."""
    seen = boxes(figure)
    renderer = FigureCanvasAgg(figure).get_renderer()
    others = [*figure.texts, *(axes.title for axes in figure.axes), *(axes._left_title for axes in figure.axes)]
    others += [text for legend in figure.legends for text in legend.get_texts()]
    return seen + [(text.get_text(), text.get_window_extent(renderer)) for text in others if text.get_text()]


def clashes(figure):
    seen = texts(figure)
    pairs = [(one, two) for (one, a), (two, b) in combinations(seen, 2) if a.shrunk(0.98, 0.98).overlaps(b)]
    frame = figure.bbox.padded(1.0)
    return pairs + [text for text, box in seen if not (frame.contains(*box.min) and frame.contains(*box.max))]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


# -- all of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_figure", FIGURES.values(), ids=FIGURES)
def test_the_same_input_gives_the_same_bytes(make_figure):
    once = written(make_figure())
    assert once.startswith(b"\x89PNG")
    assert once == written(make_figure())
    assert len(once) < SMALL


@pytest.mark.parametrize("make_figure", FIGURES.values(), ids=FIGURES)
def test_texts_never_overlap_or_leave_the_page(make_figure):
    assert not clashes(make_figure())


def test_pyplot_is_never_imported():
    sources = list(Path(figures.__file__).parent.glob("*.py"))
    assert len(sources) > 4
    assert not [source.name for source in sources if "pyplot" in source.read_text()]


def test_the_figures_of_the_paper_are_small_files():
    result = run(list(SYNTHETIC), 0, [], lambda *_: None)
    titles = {name: method.title for name, method in methods.BATCH.items()} | {"unequal-blobs": "(d) unequal blobs"}
    for figure in (
        batch_figure(result.batch, BATCH_FIGURE_RULES, titles),
        online_figure(result.online, K_MEANS, titles),
    ):
        assert len(written(figure)) < SMALL
        assert not clashes(figure)


# -- Figures 1 and 2 ---------------------------------------------------------------------------------------------------


def marks(axes):
    """Coordinates of the markers in a panel, by their legend label."""
    return {
        part.get_label(): np.asarray(part.get_offsets())
        for part in axes.collections
        if isinstance(part, PathCollection) and not isinstance(part, QuadMesh)
    }


def check_labels(axes, item, threshold):
    detection = item.detection
    flagged = detection.scores > threshold
    drawn = marks(axes)
    for outcome in OUTCOMES:
        rows = (flagged == outcome.is_flagged) & (detection.is_outlier == outcome.is_outlier)
        assert np.array_equal(drawn[outcome.label], detection.points[rows])
    region = axes.collections[0].get_array()
    assert np.array_equal(~region.mask, item.surface.scores <= threshold)
    missed, false = np.count_nonzero(detection.is_outlier & ~flagged), np.count_nonzero(flagged & ~detection.is_outlier)
    assert axes.get_title() == f"{missed} FN, {false} FP"


def check_scores(axes, item):
    assert np.array_equal(axes.collections[0].get_array(), item.surface.scores)
    assert axes.get_title() == f"{item.surface.scores.min():.2f} to {item.surface.scores.max():.2f}"


def test_the_batch_figure_has_a_row_of_panels_for_each_set_in_the_given_order():
    figure = batch_figure(BATCH, SHOWN, {"a": "A", "third": "s > 1/3", "two": "(b) two"})
    panels = np.array(figure.axes[:-1]).reshape(2, 5)
    for dataset, row in zip(BATCH, panels, strict=True):
        a, b = dataset.maps
        check_scores(row[0], b)
        check_labels(row[1], b, 0.33)
        check_labels(row[2], b, 0.5)
        check_scores(row[3], a)
        check_labels(row[4], a, 0.5)
    assert [axes.texts[0].get_text() for axes in panels[0]] == ["score", "s > 1/3", "half", "score", "half"]
    assert not [axes for axes in panels[1] if axes.texts]
    assert [text.get_text() for text in figure.texts] == ["b", "A", "one", "(b) two"]
    assert figure.axes[-1].get_xlabel() == "anomaly score"
    assert legend(figure) == [*(outcome.label for outcome in OUTCOMES), "region detected as normal"]


def test_the_online_figure_has_two_rows_for_each_set_and_a_column_for_each_step():
    figure = online_figure(ONLINE, "third", {"one": "(a) one"})
    panels = np.array(figure.axes[:-1]).reshape(4, 3)
    for i, dataset in enumerate(ONLINE):
        for panel, scores, labels in zip(dataset.maps, panels[2 * i], panels[2 * i + 1], strict=True):
            check_scores(scores, panel)
            check_labels(labels, panel, 0.33)
    assert [axes.texts[0].get_text() for axes in panels[0]] == ["t = 1", "t = 2", "t = 3"]
    assert [text.get_text() for text in figure.texts] == ["(a) one", "two"]


def test_a_score_equal_to_the_threshold_is_normal():
    points, truth = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([False, True])
    detection = Detection("a", None, points, truth, np.array([0.5, 0.6]), {"half": 0.5})
    scores = np.array([[0.5, 0.6], [0.6, 0.5]])
    figure = batch_figure(
        [DatasetMaps("one", (DetectionMap(detection, Surface([0, 1], [0, 1], scores)),))], {"a": ["half"]}
    )
    region = figure.axes[1].collections[0].get_array()
    assert np.array_equal(~region.mask, scores == 0.5)
    assert figure.axes[1].get_title() == "0 FN, 0 FP"


def test_the_colours_and_markers_are_those_of_the_paper():
    by_outcome = {(outcome.is_flagged, outcome.is_outlier): outcome for outcome in OUTCOMES}
    for (is_flagged, is_outlier), outcome in by_outcome.items():
        red, green, blue, _ = to_rgba(outcome.colour)
        assert outcome.marker == ("^" if is_flagged else "o")
        assert (green > red) if is_flagged else (red > green > blue)
        assert (outcome.edge == "none") == (is_flagged == is_outlier)
    assert len(by_outcome) == 4


def test_all_scores_share_one_colour_scale():
    figure = batch_figure(BATCH, SHOWN)
    scales = {id(axes.collections[0].norm) for axes in figure.axes[:-1] if len(axes.collections) == 1}
    assert len(scales) == 1


def test_missing_sets_and_methods_raise_with_the_reason():
    with pytest.raises(InvalidInputError, match="The set one must have a map of 'c', but has maps of: a, b"):
        batch_figure(BATCH, {"c": ["half"]})
    for draw in (lambda: batch_figure([], SHOWN), lambda: online_figure([], "half")):
        with pytest.raises(InvalidInputError, match="datasets must not be empty"):
            draw()


# -- stages ------------------------------------------------------------------------------------------------------------


def lines(axes):
    """The lines of a panel: measured and published, each as (colour, values)."""
    solid = [line for line in axes.lines if line.get_linestyle() == "-"]
    dashed = [line for line in axes.lines if line.get_linestyle() != "-" and len(line.get_ydata()) > 0]
    return ([(line.get_color(), np.asarray(line.get_ydata())) for line in part] for part in (solid, dashed))


def test_solid_lines_are_means_over_the_seeds_and_dashed_lines_are_published():
    figure = stages_figure(stage_rows(), PUBLISHED, {"wine": "Wine", "knn": "kNN"})
    assert [axes.get_title() for axes in figure.axes] == ["Wine", "pima"]
    (lof, knn), published = lines(figure.axes[0])
    means = 60.0 + 2.0 * np.arange(1, 6) + 5.0 / 3.0
    assert np.allclose(lof[1], means)
    assert np.allclose(knn[1], means + 9.0)
    assert [(colour, list(values)) for colour, values in published] == [(lof[0], PUBLISHED["lof", "wine"])]
    assert lof[0] != knn[0]
    (first, second), none = lines(figure.axes[1])
    assert [first[0], second[0]] == [lof[0], knn[0]]
    assert none == []
    assert legend(figure) == ["lof", "kNN", "measured", "± standard deviation over seeds", "published"]


def test_the_band_is_a_standard_deviation_on_either_side():
    figure = stages_figure(stage_rows(["wine"], ["lof"]), {})
    (band,) = [part.get_paths()[0].vertices for part in figure.axes[0].collections]
    at_three = np.sort(np.unique(band[band[:, 0] == 3.0, 1]))
    assert np.allclose(at_three, 66.0 + 5.0 / 3.0 + np.std([0.0, 1.0, 4.0], ddof=1) * np.array([-1.0, 1.0]))


def test_the_legend_lists_only_what_is_drawn():
    assert legend(stages_figure(stage_rows(seeds=[0]), {})) == ["lof", "knn", "measured"]


def test_a_missing_value_leaves_a_gap():
    rows = stage_rows(["wine"], ["lof"], [0])
    rows[2]["auc"] = np.nan
    figure = stages_figure(rows, {("lof", "wine"): [70.0, None, 72.0, 73.0, 20.0]})
    ((_, means),), ((_, published),) = lines(figure.axes[0])
    assert list(np.isnan(means)) == [False, False, True, False, False]
    assert list(np.isnan(published)) == [False, True, False, False, False]
    low, high = figure.axes[0].get_ylim()
    assert low <= 20.0
    assert high >= 73.0
    assert written(figure)


def test_a_method_may_have_no_results_on_a_set():
    rows = [row for row in stage_rows() if (row["set"], row["method"]) != ("pima", "knn")]
    figure = stages_figure(rows, {})
    assert [len(next(iter(lines(axes)))) for axes in figure.axes] == [2, 2]
    assert [values.size for _, values in next(iter(lines(figure.axes[1])))] == [5, 0]


@pytest.mark.parametrize("n_sets", [1, 3, 5, 8])
def test_axis_labels_are_below_every_column_and_left_of_every_row(n_sets):
    figure = stages_figure(stage_rows([f"set {i}" for i in range(n_sets)]), {})
    assert len(figure.axes) == n_sets
    assert [axes.get_xlabel() for axes in figure.axes[-min(n_sets, 4) :]] == ["stage"] * min(n_sets, 4)
    assert [axes.get_ylabel() != "" for axes in figure.axes] == [i % 4 == 0 for i in range(n_sets)]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1


def test_an_empty_list_of_rows_raises():
    with pytest.raises(InvalidInputError, match="rows must not be empty"):
        stages_figure([], {})


# -- quality -----------------------------------------------------------------------------------------------------------


def order(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_methods_are_ordered_by_their_means_over_sets_after_averaging_over_seeds():
    rows = quality_rows(
        {
            ("batch", "lof", "wine"): [90.0, 70.0],
            ("batch", "lof", "pima"): [60.0],
            ("batch", "knn", "wine"): [75.0],
            ("batch", "knn", "pima"): [75.0],
            ("novelty", "knn", "wine"): [55.0],
            ("novelty", "lof", "wine"): [65.0],
        }
    )
    batch, novelty = quality_figure(rows, titles={"knn": "kNN", "batch": "Batch"}).axes
    assert (batch.get_title("left"), novelty.get_title("left")) == ("Batch", "novelty")
    assert (order(batch), order(novelty)) == (["kNN", "lof"], ["lof", "kNN"])
    assert [text.get_text() for text in batch.texts] == ["75.0", "70.0"]
    assert [text.get_text() for text in novelty.texts] == ["65.0", "55.0"]
    values = [list(line.get_xdata()) for line in batch.lines]
    assert values == [[75.0, 75.0], [75.0], [80.0, 60.0], [70.0]]
    assert batch.get_xlim() == novelty.get_xlim()


def test_our_methods_are_highlighted():
    figure = quality_figure(QUALITY, {"mine"})
    colours = {label.get_text(): label.get_color() for label in figure.axes[0].get_yticklabels()}
    assert colours["mine"] != colours["lof"] == colours["knn"]
    assert legend(figure) == ["mean over the sets", "a set", "ours"]
    assert legend(quality_figure(QUALITY)) == ["mean over the sets", "a set"]


def test_the_measure_determines_the_order():
    by_auc, by_precision = (quality_figure(QUALITY, measure=name) for name in ("auc", "average_precision"))
    assert order(by_auc.axes[0]) == order(by_precision.axes[0])[::-1] == ["mine", "knn", "lof"]
    assert by_auc.axes[-1].get_xlabel() == "AUC, %"
    assert by_precision.axes[-1].get_xlabel() == "average precision, %"


@pytest.mark.parametrize("missing", [np.nan, None])
def test_the_number_of_sets_is_shown_if_values_are_missing(missing):
    rows = [dict(row) for row in QUALITY if row["mode"] == "batch"]
    for row in rows:
        if (row["method"], row["set"]) == ("lof", "wine"):
            row["auc"] = missing
    figure = quality_figure(rows)
    assert [text.get_text() for text in figure.axes[0].texts] == ["74.0", "64.0", "55.5 (2 of 3 sets)"]
    assert not clashes(figure)


def test_invalid_arguments_raise_with_the_reason():
    with pytest.raises(InvalidInputError, match=r"measure must be one of .* but is 'f1'"):
        quality_figure(QUALITY, measure="f1")
    with pytest.raises(InvalidInputError, match="rows must have at least one number for 'auc'"):
        quality_figure([])
