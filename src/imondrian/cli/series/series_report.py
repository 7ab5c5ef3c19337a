"""The picture of a watched series, and its HTML report."""

import numpy as np
from matplotlib.figure import Figure

import imondrian
from imondrian.alarms.incidents import Incident
from imondrian.alarms.thresholds import SURPRISE, stream_rule
from imondrian.base.defaults import SERIES
from imondrian.cli.series.watched_series import SeriesRun, SeriesTable
from imondrian.cli.stream_words import WITHOUT_TIMES, reason_texts, time_facts
from imondrian.plots import plot_series
from imondrian.plots.series import MAX_PANELS
from imondrian.report import IncidentEntry, Picture, SeriesReport
from imondrian.stream.series_views import TimeCounts

_NARROW = 4.5  # inches: width of the picture for small screens
_SUBTITLE = (
    "Watched from the first row to the last with an isolation Mondrian forest: each row was compared with what came"
    " before it, then learned."
)


def figure_of(series: SeriesTable, run: SeriesRun, width: float) -> Figure:
    """Return the picture of a series."""
    return plot_series(
        series.values,
        run.surprises,
        series.when,
        series.names,
        expected=run.expected,
        incidents=run.spans,
        labelled=series.is_labelled,
        n_warm_up=run.n_warm_up,
        x_name="row" if series.when is None else series.time_column or "",
        width=width,
    )


def report_of(source: str, series: SeriesTable, run: SeriesRun) -> SeriesReport:
    """Return the content of the report."""
    texts = _time_texts(series)
    return SeriesReport(
        title=f"Incidents in {source}",
        subtitle=_SUBTITLE,
        key_figures={
            "rows": f"{len(series.values):,}",
            "incidents": f"{len(run.incidents):,}",
            "anomalies": f"{int(run.results.is_anomaly.sum()):,}",
            "threshold": stream_rule(run.detector.threshold).text,
        },
        picture=Picture("The series", _picture_text(run, series), figure_of(series, run, 10.0)),
        narrow=figure_of(series, run, _NARROW),
        incidents=[_entry(incident, series, texts) for incident in run.incidents],
        settings=_settings(series, run),
        footer=f"imondrian {imondrian.__version__}",
    )


def _picture_text(run: SeriesRun, series: SeriesTable) -> str:
    band = "" if run.expected is None else " The blue area is where 90 % of ordinary values were expected."
    labels = "" if series.is_labelled is None else " Green lines mark the labelled rows."
    others = series.names[MAX_PANELS:]
    left_out = f" Not shown: {', '.join(others)}." if others else ""
    is_surprise = stream_rule(run.detector.threshold).name == SURPRISE
    meaning = " A surprise of 3 means that one in 1,000 ordinary rows is as unusual." if is_surprise else ""
    return (
        f"The values, with incidents in red.{left_out}{band}{labels} Below, the {run.surprises.name} of each row."
        f"{meaning} Rows above the dashed line are anomalies."
    )


def _entry(incident: Incident, series: SeriesTable, texts: list[str] | None) -> IncidentEntry:
    return IncidentEntry(
        incident.number,
        (incident.first + 1, incident.last + 1),
        None if texts is None else (texts[incident.first], texts[incident.last]),
        incident.n_alarms,
        incident.surprise,
        reason_texts(incident, series.names),
        is_open=incident.is_open,
    )


def _time_texts(series: SeriesTable) -> list[str] | None:
    """Return the time of each row as it is shown; None if there are no times."""
    if series.seconds is None:
        return None
    times = np.where(np.isnan(series.seconds), np.nan, np.round(series.seconds)).astype("datetime64[s]")
    texts = [text.replace("T", " ") for text in np.datetime_as_string(times).tolist()]
    has_seconds = any(not text.endswith(":00") for text in texts if text != "NaT")
    return ["unknown" if text == "NaT" else text if has_seconds else text[:-3] for text in texts]


def _settings(series: SeriesTable, run: SeriesRun) -> dict[str, str]:
    detector = run.detector
    parameters, rules = detector.parameters, detector.rules
    n_skipped = detector.n_skipped
    settings = {
        "values": ", ".join(series.names),
        "times": _times_in_words(series, detector.time_counts if detector.preset == SERIES else None),
        "rows without a score": f"{n_skipped:,}" if n_skipped else "",
        "warm-up": f"the first {parameters['warm_up']:,} rows, which cannot be anomalies",
        "threshold": stream_rule(detector.threshold).text,
        "incidents": f"anomalies at most {rules.gap} rows apart belong to the same incident",
        "preset": f"{detector.preset}: score {detector.kind}, window {parameters['window']:,},"
        f" {parameters['n_trees']} trees",
        "seed": str(parameters["seed"]),
    }
    return {name: text for name, text in settings.items() if text}


def _times_in_words(series: SeriesTable, counts: TimeCounts | None) -> str:
    if counts is None:
        return ""
    if series.time_column is None:
        return WITHOUT_TIMES
    unknown = "" if series.n_unknown == 0 else f", {series.n_unknown:,} unknown"
    return f"column {series.time_column!r}: {time_facts(counts)}{unknown}"
