"""The HTML page of a report: all input is escaped, and the page loads no other files."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import IO, NamedTuple, Protocol

from matplotlib.figure import Figure

from imondrian.base.column_names import NO_NAME
from imondrian.models.explanations import ExplainedRow, Reason
from imondrian.plots import write_figure

_HIGHEST = Template("""\
<section>
<h2>Rows with the highest scores</h2>
<p>Each bar shows a feature's share of the row's score. Its colour shows whether a number is higher or lower than
expected, or that the value is a category. Grey: the number is in the expected range, or it is missing.
A surprise of 3 means that about one in 1,000 ordinary rows has a score as high. Rows are counted from 1.</p>
<div class="scroll"><table>
<thead><tr><th class="number">Row</th>$heads<th class="number">Score</th><th class="number">Surprise</th>
<th>Feature, value, what is unusual, share of the score</th></tr></thead>
<tbody>
$rows
</tbody>
</table></div>
</section>
""")


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
    settings: Mapping[str, str]  # by name
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
    sections = [_highest(report.highest), *(picture_section(picture) for picture in report.pictures)]
    file.write(page_of(report, sections))


class PageContent(Protocol):
    """What every report has besides its sections."""

    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def subtitle(self) -> str: ...  # noqa: D102
    @property
    def key_figures(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def settings(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def footer(self) -> str: ...  # noqa: D102


def page_of(report: PageContent, sections: Sequence[str]) -> bytes:
    """Return a page with sections of HTML, between the key figures and the settings of a report."""
    template = Template(files("imondrian.report").joinpath("page.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=escape(report.title),
        subtitle=escape(report.subtitle),
        key_figures="".join(_key_figure(name, value) for name, value in report.key_figures.items()),
        sections="\n".join(sections),
        settings="".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in report.settings.items()),
        footer=escape(report.footer),
    )
    return page.encode()


def picture_section(picture: Picture, narrow: Figure | None = None) -> str:
    """Return a section with a picture; `narrow` is shown instead on small screens."""
    images = image(picture.figure, picture.text) if narrow is None else ""
    if narrow is not None:
        images = image(picture.figure, picture.text, "wide") + image(narrow, picture.text, "narrow")
    return f"<section><h2>{escape(picture.title)}</h2><p>{escape(picture.text)}</p>{images}</section>"


def image(figure: Figure, text: str, style: str = "") -> str:
    """Return a figure as an image inside the page."""
    svg = io.BytesIO()
    write_figure(figure, svg, "svg")
    source = base64.b64encode(svg.getvalue()).decode()
    return f'<img class="{style}" alt="{escape(text)}" src="data:image/svg+xml;base64,{source}">'


def _highest(rows: Sequence[ExplainedRow]) -> str:
    shown = [name for name in ("id", "time") if any(getattr(row, name) is not None for row in rows)]
    heads = "".join(f"<th>{name.capitalize()}</th>" for name in shown)
    return _HIGHEST.substitute(heads=heads, rows="\n".join(_row(row, shown) for row in rows))


def _key_figure(name: str, value: str) -> str:
    return f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>"


def _row(row: ExplainedRow, shown: list[str]) -> str:
    cells = "".join(
        f'<td class="shown" data-name="{name.capitalize()}">{escape(getattr(row, name) or "")}</td>' for name in shown
    )
    style = ' class="number anomaly"' if row.is_anomaly else ' class="number"'
    reasons = "".join(_reason(reason) for reason in row.explanation)
    return (
        f'<tr><td class="number" data-name="Row">{row.row}</td>{cells}<td{style} data-name="Score">{row.score:.3f}</td>'
        f'<td{style} data-name="Surprise">{row.surprise:.1f}</td><td>{reasons}</td></tr>'
    )


def _reason(reason: Reason) -> str:
    style = "category" if reason.text is not None else reason.unusual_side or "usual"
    bar = f'<div class="bar {style}"><i style="width:{100 * reason.share:.1f}%"></i></div>'
    return (
        f'<div class="reason"><span>{escape(reason.feature or NO_NAME)}</span><span>{escape(reason.value_text)}</span>'
        f'<span class="{style}">{escape(reason.remark)}</span>'
        f"{bar}<span>{reason.share:.0%}</span></div>"
    )
