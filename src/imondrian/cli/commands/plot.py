"""`imondrian plot`: figures of scores, regions, partitions and trees."""

from collections.abc import Callable
from itertools import islice
from typing import Literal

from matplotlib.figure import Figure

from imondrian.base.errors import InvalidInputError
from imondrian.base.files import atomic_write
from imondrian.cli.console import Console, escaped
from imondrian.cli.detect.html_report import score_histogram, score_regions
from imondrian.cli.detect.scored_rows import ScoredRows, TableModel, fit_rows, load_table_model, model_features
from imondrian.cli.option_checks import check_forest_options, check_output_path
from imondrian.cli.options import ConsoleOptions, FeatureOptions, ForestOptions, PlotOptions, SourceOptions
from imondrian.cli.table_rows import Rows, check_usable, open_table, read_rows, rows_of_batch
from imondrian.engine.plain_tree import Tree
from imondrian.models.fitted_model import FittedModel
from imondrian.plots import plot_partition, plot_tree, write_figure
from imondrian.tables.feature_columns import TableColumns
from imondrian.tables.table_reader import Table, TableBatch


def plot(
    kind: str,
    source_options: SourceOptions,
    feature_options: FeatureOptions,
    forest_options: ForestOptions,
    plot_options: PlotOptions,
    console_options: ConsoleOptions,
) -> None:
    """Draw a figure and write it to a file."""
    path = plot_options.output or f"{kind}.png"
    check_output_path(path, (".png", ".svg"))
    check_forest_options(forest_options)
    console = Console(console_options)
    table = open_table(source_options)
    if plot_options.model is None:
        rows, _ = read_rows(table, feature_options, console)
        with console.progress("fitting") as progress:
            model = fit_rows(rows, forest_options, feature_options.missing, progress).model
    else:
        table_model = _load_for_plot(plot_options.model, feature_options, forest_options)
        model, rows = table_model.fitted, _read_rows_for_model(table_model, table, feature_options, console)
    with console.progress("plotting"):
        figure = _FIGURES[kind](rows, model, plot_options)
    file_format: Literal["png", "svg"] = "svg" if path.lower().endswith(".svg") else "png"
    titles = {"partition": f"partition of tree {plot_options.tree}", "tree": f"tree {plot_options.tree}"}
    figure.suptitle(f"{source_options.path}: {titles.get(kind, kind)}", parse_math=False)
    with atomic_write(path) as file:
        write_figure(figure, file, file_format)
    console.print_result({"picture": path}, lambda rich: rich.print(escaped(path)))


def _load_for_plot(path: str, feature_options: FeatureOptions, forest_options: ForestOptions) -> TableModel:
    """Load a model file; raise InvalidInputError if an option would override a setting of the model."""
    model = load_table_model(path, forest_options.jobs)
    chosen = (feature_options.features, feature_options.ignore, feature_options.categorical, feature_options.calendar)
    has_features = model.fitted.feature_names is not None and any(chosen)
    if forest_options._replace(jobs=-1) != ForestOptions() or has_features:
        raise InvalidInputError(
            "--model sets the features, preset, threshold, trees, samples and seed: leave out these options."
        )
    return model.with_missing(feature_options.missing)


def _read_rows_for_model(model: TableModel, table: Table, options: FeatureOptions, console: Console) -> Rows:
    with console.progress(f"reading {table.name}") as progress:
        frame = table.read_all(progress)
    columns = TableColumns(frame)
    features = model_features(model, table, frame, columns, options)
    rows = rows_of_batch(table, TableBatch(0, frame, 1.0), columns, features, options.missing or model.missing)
    check_usable(table, rows)
    return rows


def _scores(rows: Rows, model: FittedModel, _options: PlotOptions) -> Figure:
    return score_histogram(ScoredRows(rows, model, model.score(rows.points)))


def _regions(rows: Rows, model: FittedModel, _options: PlotOptions) -> Figure:
    _check_two_features(rows)
    return score_regions(ScoredRows(rows, model, model.score(rows.points)))


def _partition(rows: Rows, model: FittedModel, options: PlotOptions) -> Figure:
    _check_two_features(rows)
    if model.indicators:
        raise InvalidInputError("A partition cannot show which values are missing: choose --missing median.")
    tree = _tree(model, options.tree)
    points = tree.lower[tree.left < 0]  # the leaves: points that the tree holds
    return plot_partition(tree, points, rows.features, max_time=options.max_time)


def _tree_figure(rows: Rows, model: FittedModel, options: PlotOptions) -> Figure:
    return plot_tree(_tree(model, options.tree), _coordinate_names(rows, model), levels=options.levels)


def _coordinate_names(rows: Rows, model: FittedModel) -> list[str]:
    """Return a name for each coordinate that trees cut; a category has two, its rarity and a random place."""
    names = [*rows.features, *(f"{rows.features[j]} missing" for j in model.indicators)]
    features, categorical = model.forest.coordinate_features, model.forest.categorical
    parts = [""] * (len(features) - 2 * len(categorical))
    parts += [" (rarity)"] * len(categorical) + [" (place)"] * len(categorical)
    return [f"{names[j]}{part}" for j, part in zip(features, parts, strict=True)]


def _check_two_features(rows: Rows) -> None:
    if len(rows.features) != 2:
        raise InvalidInputError(
            f"This plot needs two features, but there are {len(rows.features)}: choose two with --features A,B."
        )
    for j in rows.categorical:
        raise InvalidInputError(f"This plot needs two numbers, but {rows.features[j]!r} is a category.")


def _tree(model: FittedModel, number: int) -> Tree:
    if number < model.forest.n_trees:
        return next(islice(model.forest.trees(), number, None))
    raise InvalidInputError(f"There is no tree {number}; trees are numbered 0 to {model.forest.n_trees - 1}.")


_FIGURES: dict[str, Callable[[Rows, FittedModel, PlotOptions], Figure]] = {
    "scores": _scores,
    "regions": _regions,
    "partition": _partition,
    "tree": _tree_figure,
}
