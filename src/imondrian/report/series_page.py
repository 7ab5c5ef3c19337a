"""The HTML page of a report about a time series: its picture and its incidents."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import IO, NamedTuple

from matplotlib.figure import Figure

from imondrian.report.page import Picture, page_of, picture_section


class IncidentEntry(NamedTuple):
    """An incident in a report."""

    number: int
    rows: tuple[int, int]  # the first and the last anomaly, counted from 1
    times: tuple[str, str] | None  # the times of these two rows; None: there are no times
    n_alarms: int
    surprise: float  # of the peak
    reasons: Sequence[str]
    is_open: bool


class SeriesReport(NamedTuple):
    """The content of a report about a time series."""

    title: str
    subtitle: str
    key_figures: Mapping[str, str]  # shown at the top, by name
    picture: Picture
    narrow: Figure  # the picture for small screens
    incidents: Sequence[IncidentEntry]
    settings: Mapping[str, str]  # by name
    footer: str


def write_series_report(report: SeriesReport, file: IO[bytes]) -> None:
    """Write a report about a time series as an HTML page.

    Parameters
    ----------
    report : SeriesReport
        The content.
    file : binary file
        An open file to write to.
    """
    sections = [picture_section(report.picture, report.narrow), _incidents(report.incidents)]
    file.write(page_of(report, sections))


def _incidents(incidents: Sequence[IncidentEntry]) -> str:
    if not incidents:
        return "<section><h2>Incidents</h2><p>There are none: no row or group of rows was unusual enough.</p></section>"
    heads = "".join(
        f"<th{style}>{name}</th>"
        for name, style in (
            ("Incident", ' class="number"'),
            ("First anomaly", ""),
            ("Last anomaly", ""),
            ("Anomalies", ' class="number"'),
            ("Surprise", ' class="number"'),
            ("What was unusual", ""),
        )
    )
    text = (
        "Anomalies that are close together form one incident. The surprise is that of its most unusual row. The reasons"
        " describe the row at which the incident was reported, or a later row that was far more unusual."
    )
    rows = "\n".join(_row(incident) for incident in incidents)
    return (
        f'<section><h2>Incidents</h2><p>{text}</p><div class="scroll"><table class="incidents">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _row(incident: IncidentEntry) -> str:
    first, last = (_place(incident, i) for i in range(2))
    state = " (not over)" if incident.is_open else ""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in incident.reasons) or "<li>not known</li>"
    return (
        f'<tr><td class="number" data-name="Incident">{incident.number}</td>'
        f'<td class="from" data-name="from">{first}</td><td class="to" data-name="to">{last}{state}</td>'
        f'<td class="number" data-name="Anomalies:">{incident.n_alarms:,}</td>'
        f'<td class="number anomaly" data-name="Surprise:">{incident.surprise:.1f}</td><td><ul>{reasons}</ul></td></tr>'
    )


def _place(incident: IncidentEntry, i: int) -> str:
    """Return where an incident starts or ends: the time, or else the row."""
    return escape(incident.times[i]) if incident.times is not None else f"row {incident.rows[i]:,}"
