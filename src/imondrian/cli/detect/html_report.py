"""The HTML report of `imondrian detect`, and the figures that it shares with `imondrian plot`."""

import numpy as np
from matplotlib.figure import Figure

import imondrian
from imondrian.alarms.thresholds import FIXED, KMEANS, SHARE, Rule, two_means
from imondrian.base.errors import InvalidInputError
from imondrian.base.files import atomic_write
from imondrian.cli.detect.scored_rows import ScoredRows
from imondrian.cli.detect.summary import Summary, share_in_words
from imondrian.cli.options import FeatureOptions, ForestOptions
from imondrian.cli.table_rows import Rows
from imondrian.engine.jit import Array
from imondrian.models.fitted_model import FittedModel
from imondrian.plots import (
    Surface,
    grid_over,
    plot_explanations,
    plot_regions,
    plot_scatter,
    plot_scores,
    plot_timeline,
)
from imondrian.report import Picture, Report, write_report
from imondrian.tables.feature_columns import time_values

_SUBTITLE = "Found by an isolation Mondrian forest: rows that a few random cuts isolate have high scores."
_TWO_CLUSTERS = "two clusters"  # name of the rule "kmeans" in figures
_MAX_EXPLAINED = 2000  # largest number of anomalies from which the mean explanation is computed


def write_html_report(
    path: str, scored: ScoredRows, summary: Summary, forest_options: ForestOptions, feature_options: FeatureOptions
) -> None:
    """Write the report to a file."""
    parts = _parts_of_anomalies(scored, summary)
    pictures = [
        _histogram(scored),
        _timeline(scored, feature_options.time),
        _mean_explanation(scored, parts, summary),
    ]
    if len(_numbers(scored.rows)) >= 2:
        pictures.append(_two_features(scored, parts))
    report = Report(
        title=f"Anomalies in {summary.source}",
        subtitle=f"{_SUBTITLE} No row is an anomaly. {summary.hint}" if summary.hint else _SUBTITLE,
        key_figures=_key_figures(summary),
        highest=summary.highest,
        pictures=pictures,
        settings=_settings(scored.model, summary, forest_options, feature_options),
        footer=f"imondrian {imondrian.__version__}",
    )
    with atomic_write(path) as file:
        write_report(report, file)


def score_histogram(scored: ScoredRows) -> Figure:
    """Return a histogram of the scores, with the threshold in use and those of the paper: 0.5 and two clusters."""
    rule, scores = scored.model.rule, scored.scores
    chosen = _TWO_CLUSTERS if rule.name == KMEANS else f"{rule.value:.4g}" if rule.name == FIXED else _short(rule)
    thresholds = {"0.5": 0.5, _TWO_CLUSTERS: two_means(scores[np.isfinite(scores)])}
    return plot_scores(scores, {**thresholds, chosen: scored.model.threshold}, chosen)


def _short(rule: Rule) -> str:
    return f"top {100.0 * rule.value:.4g}%" if rule.name == SHARE else f"surprise {rule.value:.4g}"


def score_regions(scored: ScoredRows) -> Figure:
    """Return a map of the score over two features, with the region that is normal."""
    rows, model = scored.rows, scored.model
    is_complete = np.isfinite(rows.points).all(axis=1)
    points = rows.points[is_complete]
    grid = grid_over(points)
    surface = Surface(grid.x, grid.y, model.score(grid.nodes).reshape(len(grid.y), len(grid.x)))
    return plot_regions(points, scored.is_anomaly[is_complete], surface, model.threshold, rows.features)


# -- texts ------------------------------------------------------------------------------------------------------------


def _key_figures(summary: Summary) -> dict[str, str]:
    return {
        "rows": f"{summary.n_rows:,}",
        "anomalies": f"{summary.n_anomalies:,}",
        "of the scored rows": share_in_words(summary.n_anomalies, summary.n_scored),
        "threshold": f"{summary.threshold:.3f}",
    }


def _settings(
    model: FittedModel, summary: Summary, forest_options: ForestOptions, feature_options: FeatureOptions
) -> dict[str, str]:
    forest = model.forest
    scale = {None: "features not weighted", "std": "features weighted by one over their standard deviation"}
    settings = {
        **summary.columns.in_words(),
        "threshold": f"{summary.threshold:.4f}: {summary.rule}",
        "missing values": _describe_missing(feature_options.missing, summary),
        "forest": f"{forest.n_trees} trees of at most {forest.max_samples or forest.n_points} points",
        "preset": f"{forest_options.preset}: score {model.kind}, {scale[forest.scale]}",
        "seed": str(forest_options.seed),
    }
    return {name: text for name, text in settings.items() if text}


def _describe_missing(missing: str | None, summary: Summary) -> str:
    n_unscored, n_filled = summary.n_rows - summary.n_scored, sum(summary.columns.filled.values())
    rules = {"indicator": "replaced by the median of the column, and their absence is a feature"}
    rule = rules.get(missing or "", "replaced by the median of the column")
    parts = [f"{n_filled:,} numbers {rule}"] if n_filled else []
    parts += [f"{n_unscored:,} rows have missing values and no score"] if n_unscored else []
    return "; ".join(parts) or "none"


# -- figures ----------------------------------------------------------------------------------------------------------


def _parts_of_anomalies(scored: ScoredRows, summary: Summary) -> Array:
    """Return the parts for the anomalies with the highest scores; without anomalies, for the rows in the summary."""
    n = min(summary.n_anomalies or len(summary.highest), _MAX_EXPLAINED)
    return scored.parts(scored.highest(n))


def _histogram(scored: ScoredRows) -> Picture:
    text = (
        "Number of rows by score; 0.5 is the score of an average row. The solid line is the threshold in use, the"
        " dashed ones are those of the paper."
    )
    return Picture("Scores", text, score_histogram(scored))


def _timeline(scored: ScoredRows, time: str | None) -> Picture:
    threshold, times = scored.model.threshold, time_values(scored.rows.frame, time)
    try:
        label = "row" if time is None or times is None else time
        figure = plot_timeline(scored.scores, threshold, times, label)
    except InvalidInputError:  # times that an axis cannot show
        figure = plot_timeline(scored.scores, threshold)
    return Picture("Scores in order", "The score of every row in order: bursts of anomalies are visible.", figure)


def _mean_explanation(scored: ScoredRows, parts: Array, summary: Summary) -> Picture:
    which = "anomalies" if summary.n_anomalies else "rows with the highest scores"
    text = f"The mean share of each feature in the scores of the {which}, and whether numbers are high or low."
    figure = plot_explanations(parts, scored.rows.features, categorical=scored.rows.categorical)
    return Picture(f"Features of the {which}", text, figure)


def _two_features(scored: ScoredRows, parts: Array) -> Picture:
    rows = scored.rows
    if len(rows.features) == 2:
        return Picture(
            "Score by position", "The score over both features, and the normal region.", score_regions(scored)
        )
    order = np.argsort(-np.abs(parts).mean(axis=0), kind="stable")
    numbers = _numbers(rows)
    leading = [j for j in order if j in numbers][:2]
    names = [rows.features[j] for j in leading]
    points, is_anomaly = rows.points[:, leading], scored.is_anomaly
    is_complete = np.isfinite(points).all(axis=1)
    text = (
        f"The two numeric features with the largest shares: {names[0]} and {names[1]}."
        " Rows may be anomalous in other features."
    )
    figure = plot_scatter(points[is_complete], is_anomaly[is_complete], names)
    return Picture("The leading features", text, figure)


def _numbers(rows: Rows) -> set[int]:
    """Return the indices of the features that are numbers."""
    return set(range(len(rows.features))) - set(rows.categorical)
