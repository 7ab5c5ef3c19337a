"""The report about a series: its incidents with times and reasons, and everything from outside shown as text."""

import io

import pytest

from imondrian.plots import Surprises, plot_series
from imondrian.report import IncidentEntry, Picture, SeriesReport, write_series_report
from tests.report.test_page import HOSTILE, Reader


def read(report):
    file = io.BytesIO()
    write_series_report(report, file)
    reader = Reader()
    reader.feed(file.getvalue().decode())
    assert reader.open == []
    return reader


def report_of(text, incidents):
    figure = plot_series([1.0, 2.0], Surprises([0.1, 0.2], 3.0), names=[text])
    return SeriesReport(text, text, {text: text}, Picture(text, text, figure), figure, incidents, {text: text}, text)


def entry(text, times=None, *, is_open=False):
    return IncidentEntry(3, (17, 1_234), times, 5, 4.56, [text], is_open=is_open)


def test_hostile_input_is_shown_as_text():
    reader = read(report_of(HOSTILE, [entry(HOSTILE, (HOSTILE, HOSTILE))]))
    assert "script" not in reader.tags
    assert reader.texts.count(HOSTILE) >= 8
    assert all(source.startswith("data:image/svg+xml;base64,") for source in reader.sources)
    assert reader.tags.count("img") == 2  # for wide and for narrow screens


@pytest.mark.parametrize("is_open", [True, False])
def test_an_incident_without_times_names_its_rows(is_open):
    texts = read(report_of("x", [entry("why", is_open=is_open)])).texts
    assert {"3", "row 17", "row 1,234" + " (not over)" * is_open, "5", "4.6", "why"} <= set(texts)


def test_a_report_without_incidents_says_so():
    reader = read(report_of("x", []))
    assert "There are none: no row or group of rows was unusual enough." in reader.texts
    assert "table" not in reader.tags
