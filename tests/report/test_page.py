"""A report is one page that loads no files, runs no scripts, and shows its input as text."""

import base64
import io
import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

from imondrian.models.explanations import ExplainedRow, Reason
from imondrian.plots import plot_timeline
from imondrian.report import Picture, Report, write_report
from imondrian.report.page import _reason

HOSTILE = "<script>alert('x')</script>\"&$title ${a}"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.sources, self.texts, self.open = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in {"meta", "img", "link"}:
            self.open.append(tag)
        self.sources += [value for name, value in attributes if name in {"src", "href"}]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(report):
    file = io.BytesIO()
    write_report(report, file)
    page = file.getvalue().decode()
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return page, reader


def report_of(text, time=None):
    picture = Picture(text, text, plot_timeline([0.4, 0.9], threshold=0.5))
    row = ExplainedRow(
        17, 0.9123, 4.56, is_anomaly=True, time=time, explanation=[Reason(text, 3.25, 0.75, is_high=False)]
    )
    return Report(text, text, {text: text}, [row], [picture, picture], {text: text}, text)


def test_hostile_input_is_shown_as_text():
    page, reader = read(report_of(HOSTILE, HOSTILE))
    assert "script" not in reader.tags
    assert reader.texts.count(HOSTILE) >= 8
    assert "Time" in reader.texts
    assert page.count("Content-Security-Policy") == 1


def test_the_page_loads_no_other_files():
    page, reader = read(report_of("plain"))
    assert len(reader.sources) == reader.tags.count("img") == 2
    for source in reader.sources:
        kind, _, content = source.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert ET.fromstring(base64.b64decode(content)).tag.endswith("svg")  # noqa: S314
    assert not re.search(r"url\(|@import|https?:", page.replace("\n", ""))


def test_anomalous_rows_are_shown_with_their_explanations():
    page, reader = read(report_of("plain"))
    for text in ("17", "0.912", "4.6", "Surprise", "3.25", "low", "75%"):
        assert text in reader.texts
    assert "width:75.0%" in page
    assert "Time" not in reader.texts


def test_the_colour_of_a_number_says_whether_it_is_outside_its_expected_range():
    expected = {("low", 3.0): (4.0, 9.0), ("usual", 5.0): (4.0, 9.0), ("high", 10.0): (4.0, 9.0), ("high", 7.0): None}
    for (style, value), bounds in expected.items():
        reason = Reason("amount", value, 0.75, is_high=value > 4.0, expected=bounds)
        assert f'<div class="bar {style}">' in _reason(reason)
    assert '<div class="bar category">' in _reason(Reason("town", 1.0, 0.75, is_high=False, text="Rome"))
    assert '<div class="bar usual">' in _reason(Reason("amount", math.nan, 0.75, is_high=False))
