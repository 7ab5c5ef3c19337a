"""Repeated log lines are counted instead of written."""

import logging

import pytest

from imondrian.service.http import server
from imondrian.service.http.server import RepeatFilter


@pytest.fixture
def log(caplog, monkeypatch):
    logger, repeats = logging.getLogger("imondrian.test.repeats"), RepeatFilter(seconds=60.0)
    logger.addFilter(repeats)
    now = [1000.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])

    def write(message, *values, error=None, after=0.0):
        now[0] += after
        record = logger.makeRecord(
            logger.name, logging.ERROR, "", 0, message, values, error and (type(error), error, None)
        )
        record.created = 1e9 - now[0]  # a clock that is set back changes nothing
        logger.handle(record)
        return caplog.messages

    yield write, repeats
    logger.removeFilter(repeats)


def test_a_repeated_line_is_written_once_a_minute_with_a_count(log):
    write, repeats = log
    for _ in range(1000):
        assert write("Failed %s.", "a") == ["Failed a."]
    assert write("Failed %s.", "b") == ["Failed a.", "Failed b."]
    assert repeats.suppressed() == ["Failed a. ... repeated 999 times"]
    assert write("Failed %s.", "a", after=61.0)[-1] == "Failed a. ... repeated 999 times"
    assert repeats.suppressed() == []
    write("Failed %s.", "a")
    assert write("Failed %s.", "a", after=61.0)[-1] == "Failed a. ... repeated 1 times"


def test_lines_with_different_errors_are_different_lines(log):
    write, _ = log
    for error in (ValueError("a"), ValueError("b"), KeyError("a"), ValueError("a")):
        messages = write("Failed.", error=error)
    assert messages == ["Failed."] * 3


def test_the_number_of_remembered_lines_is_limited(log):
    write, repeats = log
    for i in range(1500):
        write(str(i))
    assert len(repeats._lines) <= 1000
    assert write("0")[-1] == "0"
