"""The HTML page of a report: all input is escaped, and the page loads no other files."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import IO, NamedTuple

from matplotlib.figure import Figure

from imondrian.column_names import NO_NAME
from imondrian.explanations import ExplainedRow, Reason
from imondrian.plots import write_figure


class Picture(NamedTuple):
    """A figure with a title and a description."""

    title: str
    text: str
    figure: Figure


class Report(NamedTuple):
    """The content of a report."""

    title: str
    subtitle: str
    key_figures: Mapping[str, str]  # shown at the top, by name
    highest: Sequence[ExplainedRow]  # the rows with the highest scores
    pictures: Sequence[Picture]
    facts: Mapping[str, str]  # the settings, by name
    footer: str


def write_report(report: Report, file: IO[bytes]) -> None:
    """Write a report as an HTML page.

    Parameters
    ----------
    report : Report
        The content.
    file : binary file
        An open file to write to.
    """
    template = Template(files("imondrian.report").joinpath("page.html").read_text(encoding="utf-8"))
    shown = [name for name in ("id", "time") if any(getattr(row, name) is not None for row in report.highest)]
    page = template.substitute(
        title=escape(report.title),
        subtitle=escape(report.subtitle),
        key_figures="".join(_key_figure(name, value) for name, value in report.key_figures.items()),
        shown_heads="".join(f"<th>{name.capitalize()}</th>" for name in shown),
        rows="\n".join(_row(row, shown) for row in report.highest),
        pictures="\n".join(_section(picture) for picture in report.pictures),
        facts="".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in report.facts.items()),
        footer=escape(report.footer),
    )
    file.write(page.encode())


def _key_figure(name: str, value: str) -> str:
    return f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>"


def _row(row: ExplainedRow, shown: list[str]) -> str:
    cells = "".join(f'<td class="shown">{escape(getattr(row, name) or "")}</td>' for name in shown)
    style = ' class="number anomaly"' if row.is_anomaly else ' class="number"'
    reasons = "".join(_reason(reason) for reason in row.explanation)
    return (
        f'<tr><td class="number">{row.row}</td>{cells}<td{style}>{row.score:.3f}</td>'
        f"<td{style}>{row.surprise:.1f}</td><td>{reasons}</td></tr>"
    )


def _reason(reason: Reason) -> str:
    style = reason.side or "category"
    bar = f'<div class="bar {style}"><i style="width:{100 * reason.share:.1f}%"></i></div>'
    return (
        f'<div class="reason"><span>{escape(reason.feature or NO_NAME)}</span><span>{escape(reason.value_text)}</span>'
        f'<span class="{style}">{escape(reason.remark)}</span>'
        f"{bar}<span>{reason.share:.0%}</span></div>"
    )


def _section(picture: Picture) -> str:
    svg = io.BytesIO()
    write_figure(picture.figure, svg, "svg")
    source = base64.b64encode(svg.getvalue()).decode()
    return (
        f"<section><h2>{escape(picture.title)}</h2><p>{escape(picture.text)}</p>"
        f'<img alt="{escape(picture.text)}" src="data:image/svg+xml;base64,{source}"></section>'
    )
