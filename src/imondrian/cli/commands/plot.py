"""`imondrian plot`: pictures of scores, regions, partitions and trees."""

from collections.abc import Callable
from itertools import islice
from typing import Literal

from matplotlib.figure import Figure

from imondrian.cli.batches import matched_features
from imondrian.cli.console import Console
from imondrian.cli.forests import check_making, fitted
from imondrian.cli.outputs import check_place
from imondrian.cli.pictures import picture_of_regions, thresholds_of
from imondrian.cli.rows import Rows, check_usable, opened, read_rows, rows_of
from imondrian.cli.settings import Choice, Drawing, Making, Source, Telling
from imondrian.cli.summary import escaped
from imondrian.engine.view import Tree
from imondrian.errors import InvalidInputError
from imondrian.files import atomic_write
from imondrian.plots import plot_partition, plot_scores, plot_tree, write_figure
from imondrian.scorer import Scorer, loaded, scorer_of
from imondrian.tables.reading import Batch


def run(kind: str, source: Source, choice: Choice, making: Making, drawing: Drawing, telling: Telling) -> None:
    """Draw one of the pictures and write it."""
    path = drawing.output or f"{kind}.png"
    check_place(path, (".png", ".svg"))
    check_making(making)
    console = Console(telling)
    rows, scorer = _rows_and_scorer(source, choice, making, drawing, console)
    with console.progress("drawing"):
        figure = _PICTURES[kind](rows, scorer, drawing)
    form: Literal["png", "svg"] = "svg" if path.lower().endswith(".svg") else "png"
    title = {"partition": f"partition of tree {drawing.tree}", "tree": f"tree {drawing.tree}"}.get(kind, kind)
    figure.suptitle(f"{source.path}: {title}", parse_math=False)
    with atomic_write(path) as file:
        write_figure(figure, file, form)
    console.tell({"picture": path}, lambda rich: rich.print(escaped(path)))


def _rows_and_scorer(
    source: Source, choice: Choice, making: Making, drawing: Drawing, console: Console
) -> tuple[Rows, Scorer]:
    """Read a table, and take the model for it or fit one."""
    table = opened(source)
    if drawing.model is None:
        rows, _ = read_rows(table, choice, console)
        with console.progress("fitting"):
            return rows, scorer_of(fitted(rows, making), table.name)
    scorer = scorer_of(loaded(drawing.model), drawing.model)
    _check_given(choice, making, scorer)
    scorer.forest.n_jobs = making.jobs
    with console.progress(f"reading {table.name}") as progress:
        frame = table.whole(progress)
    features = matched_features(scorer, table, frame, choice, drawing.model)
    rows = rows_of(table, Batch(0, frame, 1.0), features, choice.missing, scorer.medians)
    check_usable(table, rows)
    return rows, scorer


def _check_given(choice: Choice, making: Making, scorer: Scorer) -> None:
    """Refuse options that a model has already decided."""
    if making._replace(jobs=-1) != Making() or (scorer.features is not None and (choice.features or choice.ignore)):
        raise InvalidInputError("With --model, its own features, preset, threshold, trees, samples and seed are used.")


def _draw_scores(rows: Rows, scorer: Scorer, _drawing: Drawing) -> Figure:
    scores = scorer.scores(rows.points)
    return plot_scores(scores, *thresholds_of(scorer, scores))


def _draw_regions(rows: Rows, scorer: Scorer, _drawing: Drawing) -> Figure:
    _check_two(rows)
    return picture_of_regions(rows, scorer, scorer.scores(rows.points))


def _draw_partition(rows: Rows, scorer: Scorer, drawing: Drawing) -> Figure:
    _check_two(rows)
    tree = _tree(scorer, drawing.tree)
    points = tree.lower[tree.left < 0]  # those that the tree holds: its leaves
    return plot_partition(tree, points, rows.features, max_time=drawing.max_time)


def _draw_tree(rows: Rows, scorer: Scorer, drawing: Drawing) -> Figure:
    return plot_tree(_tree(scorer, drawing.tree), rows.features, levels=drawing.levels)


def _check_two(rows: Rows) -> None:
    if len(rows.features) != 2:
        raise InvalidInputError(
            f"This picture is of two features, but there are {len(rows.features)}: choose two with --features A,B."
        )


def _tree(scorer: Scorer, number: int) -> Tree:
    if number < scorer.forest.n_trees:
        return next(islice(scorer.forest.trees(), number, None))
    raise InvalidInputError(f"There is no tree {number}; there are trees 0 to {scorer.forest.n_trees - 1}.")


_PICTURES: dict[str, Callable[[Rows, Scorer, Drawing], Figure]] = {
    "scores": _draw_scores,
    "regions": _draw_regions,
    "partition": _draw_partition,
    "tree": _draw_tree,
}
