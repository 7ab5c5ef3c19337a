"""The report of a table that has been scored: its pictures and what they show."""

import numpy as np

import imondrian
from imondrian.cli.pictures import picture_of_regions, thresholds_of
from imondrian.cli.rows import Rows
from imondrian.cli.settings import Choice, Making
from imondrian.cli.summary import Summary, about_columns
from imondrian.engine.jit import Array
from imondrian.errors import InvalidInputError
from imondrian.files import written_whole
from imondrian.plots import plot_explanations, plot_scatter, plot_scores, plot_timeline
from imondrian.report import Picture, Report, write_report
from imondrian.scorer import Scorer
from imondrian.tables.columns import times_of

_MOST_EXPLAINED = 2000  # anomalies that the reasons are averaged over


def write_page(
    path: str, rows: Rows, scorer: Scorer, scores: Array, summary: Summary, making: Making, choice: Choice
) -> None:
    """Write the report to a file."""
    parts = _parts_of_oddest(rows, scorer, scores, summary)
    pictures = [
        _histogram(scorer, scores),
        _timeline(rows, scorer, scores, choice.time),
        _reasons(rows, parts, summary),
    ]
    if len(rows.features) >= 2:
        pictures.append(_pair(rows, scorer, scores, parts))
    report = Report(
        title=f"Anomalies in {summary.source}",
        subtitle="Found by an isolation Mondrian forest: the fewer random cuts isolate a row, the odder it is.",
        figures=_figures(summary),
        oddest=summary.oddest,
        pictures=pictures,
        facts=_facts(scorer, summary, making, choice),
        footer=f"imondrian {imondrian.__version__}",
    )
    with written_whole(path) as file:
        write_report(report, file)


def _figures(summary: Summary) -> dict[str, str]:
    share = summary.n_anomalies / max(summary.n_scored, 1)
    return {
        "rows": f"{summary.n_rows:,}",
        "anomalies": f"{summary.n_anomalies:,}",
        "of the rows scored": f"{share:.1%}",
        "threshold": f"{summary.threshold:.3f}",
    }


def _facts(scorer: Scorer, summary: Summary, making: Making, choice: Choice) -> dict[str, str]:
    forest = scorer.forest
    scale = {None: "features as they come", "std": "features over their standard deviation"}[forest.scale]
    facts = {
        **about_columns(summary.features, summary.left_out),
        "threshold": f"{summary.threshold:.4f}: {summary.rule}",
        "missing values": _missing_in_words(choice.missing, summary.n_rows - summary.n_scored),
        "forest": f"{forest.n_trees} trees of at most {forest.max_samples or forest.n_points} points",
        "preset": f"{making.preset}: score {scorer.kind}, {scale}",
        "seed": str(making.seed),
    }
    return {name: text for name, text in facts.items() if text}


def _missing_in_words(missing: str, n_unscored: int) -> str:
    if missing == "median":
        return "the column's median taken instead, where there were any"
    return f"{n_unscored:,} rows have some, and no score" if n_unscored else "none"


def _parts_of_oddest(rows: Rows, scorer: Scorer, scores: Array, summary: Summary) -> Array:
    """Explain the anomalies, the oddest of them if they are many, or the oddest rows if there are none."""
    n = min(summary.n_anomalies or len(summary.oddest), _MOST_EXPLAINED)
    order = np.argsort(-np.nan_to_num(scores, nan=-1.0), kind="stable")[:n]
    return scorer.parts(rows.points[order])


def _histogram(scorer: Scorer, scores: Array) -> Picture:
    limits, chosen = thresholds_of(scorer, scores)
    text = "How many rows have which score: 0.5 is that of an average row. The solid line is the threshold in use."
    return Picture("Scores", text, plot_scores(scores, limits, chosen))


def _timeline(rows: Rows, scorer: Scorer, scores: Array, time: str | None) -> Picture:
    when, text = (
        times_of(rows.frame, time),
        "The score of every row in its order: bursts of anomalies stand side by side.",
    )
    try:
        figure = plot_timeline(scores, scorer.threshold, when, "row" if time is None or when is None else time)
    except InvalidInputError:  # times that no axis can show
        figure = plot_timeline(scores, scorer.threshold)
    return Picture("Scores in order", text, figure)


def _reasons(rows: Rows, parts: Array, summary: Summary) -> Picture:
    of_whom = "anomalies" if summary.n_anomalies else "oddest rows"
    text = f"The mean share of each feature in the scores of the {of_whom}, and the side on which they lie there."
    return Picture(f"What makes the {of_whom} odd", text, plot_explanations(parts, rows.features))


def _pair(rows: Rows, scorer: Scorer, scores: Array, parts: Array) -> Picture:
    if len(rows.features) == 2:
        text = "The score of every place, and the region that is normal."
        return Picture("Where rows are odd", text, picture_of_regions(rows, scorer, scores))
    leading = np.argsort(-np.abs(parts).mean(axis=0), kind="stable")[:2]
    names = [rows.features[j] for j in leading]
    points, is_anomaly = rows.points[rows.usable][:, leading], scores[rows.usable] > scorer.threshold
    text = f"The two features that tell most, {names[0]} and {names[1]}: some rows are odd in others."
    return Picture("The leading features", text, plot_scatter(points, is_anomaly, names))
