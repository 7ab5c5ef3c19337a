"""Every interface has the same defaults: those of `imondrian.base.defaults`."""

import inspect
from html.parser import HTMLParser
from importlib.resources import files

import click
import pytest

from imondrian import IsolationMondrianForest, MondrianForest, StreamDetector, StreamingThreshold
from imondrian.base import defaults
from imondrian.base.defaults import (
    GAP,
    MISSING_VALUES,
    PRESETS,
    STREAM_PRESETS,
    Preset,
    preset_of,
    resolved,
    with_preset,
    with_stream_preset,
)
from imondrian.base.errors import InvalidInputError
from imondrian.cli.app import app
from imondrian.cli.options import DetectorOptions, ForestOptions
from imondrian.pyod import IMForest
from imondrian.service.changes.configuration import DEFAULTS
from imondrian.service.http.schemas import Configuration
from tests.optional_models import river_class

SIZES = {"n_trees": defaults.N_TREES, "max_samples": defaults.MAX_SAMPLES}
STREAM = {**SIZES, "window": defaults.WINDOW, "shingle": defaults.SHINGLE, "seed": defaults.SEED}
FROM_PRESET = {"preset": "practice", "kind": "preset", "scale": "preset"}


def defaults_of(call):
    parameters = inspect.signature(call).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def assert_has(call, expected):
    assert {name: defaults_of(call)[name] for name in expected} == expected


def test_default_values():
    assert STREAM == {"n_trees": 100, "max_samples": 256, "window": 2048, "shingle": 1, "seed": 0}
    assert {
        "practice": Preset("size", "std", contamination=0.05, table_threshold="auto", threshold=0.001, auto=0.001),
        "paper": Preset("depth", None, contamination="kmeans", table_threshold="kmeans", threshold="kmeans", auto=0.5),
    } == PRESETS
    series = {"kind": "expected", "n_trees": 20, "max_samples": None, "window": 8192, "warm_up_part": 16}
    assert {**PRESETS, "series": PRESETS["practice"]._replace(**series)} == defaults.STREAM_PRESETS
    assert (defaults.KEYED_N_TREES, defaults.KEYED_MAX_SAMPLES, defaults.KEYED_WINDOW) == (24, 64, 256)


def test_defaults_of_classes():
    assert_has(MondrianForest, {"n_trees": 100, "seed": 0, "n_jobs": 1, "max_samples": None, "scale": None})
    assert "preset" not in defaults_of(MondrianForest)
    sizes = {"n_trees": "preset", "max_samples": "preset", "window": "preset", "shingle": 1, "seed": 0}
    assert_has(StreamDetector, {**sizes, **FROM_PRESET, "threshold": "preset", "on_error": "raise", "n_jobs": 1})
    assert STREAM.items() <= StreamDetector(1).parameters.items()
    assert_has(IsolationMondrianForest, {"n_estimators": 100, **FROM_PRESET, "contamination": "preset"})
    assert_has(IMForest, {"n_estimators": 100, **FROM_PRESET, "contamination": 0.1})
    assert_has(river_class(), {**SIZES, **FROM_PRESET})
    assert_has(StreamingThreshold, {"rule": 0.001, "half_life": 1024})


def test_defaults_of_the_service():
    sizes = {"n_trees": "preset", "max_samples": "preset", "window": "preset", "shingle": 1, "seed": 0}
    expected = {**sizes, **FROM_PRESET, "threshold": "preset", "warm_up": None, "learn_anomalies": True}
    expected |= {"categorical": [], "missing": MISSING_VALUES, "time": "time"}
    expected |= {"gap": GAP, "min_points": 1, "cooldown": 0, "side": {}, "ignore_within": {}, "silence": None}
    expected |= {"key": None, "max_bytes": None}
    assert expected == DEFAULTS
    assert Configuration(features=["x"]).model_dump() == {"features": ["x"], **expected}


@pytest.mark.parametrize("command", ["detect", "fit", "watch"])
def test_defaults_of_the_command_line(command):
    options = {each.name: each for each in app.commands[command].params}
    if command == "watch":
        expected = {"trees": "100", "samples": "256", "window": "2048", "shingle": "1", "seed": "0"}
        of_series = {"trees": "20", "samples": "0", "window": "8192"}
        expected |= {name: f"{expected[name]} (practice, paper), {value} (series)" for name, value in of_series.items()}
        for name, value in expected.items():
            assert getattr(DetectorOptions(), name) is None  # a loaded model determines these settings
            assert f"[default: {value}]" in options[name].help
        assert "[default: practice]" in options["preset"].help
    else:
        found = {name: options[name].default for name in ("preset", "trees", "samples", "seed")}
        assert found == {"preset": "practice", "trees": 100, "samples": 256, "seed": 0}
        assert {name: getattr(ForestOptions(), name) for name in found} == found
    threshold = "0.001 (practice, series)" if command == "watch" else "auto (practice)"
    assert f"[default: {threshold}, kmeans (paper)]" in options["threshold"].help
    assert list(options["preset"].type.choices) == list(defaults.STREAM_PRESETS if command == "watch" else PRESETS)
    assert isinstance(options["preset"].type, click.Choice)


class Fields(HTMLParser):
    """Collect the fields of the form for a new detector, with their initial values."""

    def __init__(self):
        super().__init__()
        self.values, self.select, self.form = {}, None, None
        self.sizes = {}  # by preset
        self.feed(files("imondrian.service").joinpath("static/index.html").read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.form = attributes["id"] if tag == "form" and "id" in attributes else self.form
        if self.form != "create":
            return
        if tag == "input" and "name" in attributes:
            is_checkbox = attributes.get("type") == "checkbox"
            self.values[attributes["name"]] = "checked" in attributes if is_checkbox else attributes.get("value")
        elif tag == "select":
            self.select = attributes["name"]
            self.values[self.select] = []
        elif tag == "option":
            self.values[self.select].append(attributes.get("value"))
            if self.select == "preset":
                self.sizes[attributes.pop("value")] = attributes

    def handle_endtag(self, tag):
        self.form = None if tag == "form" else self.form
        self.select = None if tag == "select" else self.select

    def handle_data(self, data):
        if self.select is not None and self.values[self.select] and self.values[self.select][-1] is None:
            self.values[self.select][-1] = data  # an option without a value has its text as value


def test_defaults_of_the_web_page():
    values = Fields().values
    assert [values[name] for name in ("window", "max_samples", "n_trees")] == [None] * 3  # from the preset
    assert int(values["shingle"]) == STREAM["shingle"]
    assert values["learn_anomalies"] is DEFAULTS["learn_anomalies"]
    assert values["preset"][0] == DEFAULTS["preset"]
    assert sorted(values["preset"]) == sorted(STREAM_PRESETS)
    for name, preset in STREAM_PRESETS.items():
        sizes = {
            f"data-{size.replace('_', '-')}": getattr(preset, size) for size in ("window", "max_samples", "n_trees")
        }
        shown = Fields().sizes[name]
        assert shown == {size: "all" if value is None else str(value) for size, value in sizes.items()}
    assert values["threshold"][0] == DEFAULTS["threshold"] == "preset"
    assert str(PRESETS["practice"].threshold) in values["threshold"]
    unknown = set(values) - {"name", "share", "table"} - set(DEFAULTS)
    assert unknown == set()  # every other field is a setting


@pytest.mark.spark
def test_defaults_of_spark():
    spark = pytest.importorskip("imondrian.spark")
    for call in (spark.fit, spark.fit_by_key):
        assert_has(call, {**SIZES, "seed": 0, **FROM_PRESET, "threshold": "preset", "on_error": "raise"})
    sizes = dict.fromkeys(("n_trees", "max_samples", "window"), "preset")
    assert_has(spark.watch, {**sizes, **FROM_PRESET, "threshold": "preset", "on_error": "raise"})
    pipeline = {"nTrees": 100, "maxSamples": 256, "seed": 0, **FROM_PRESET, "contamination": "preset"}
    assert_has(spark.IsolationMondrianForest.__init__, pipeline)
    assert_has(spark.score, {"output": "anomaly_score", "surprise": "surprise"})
    assert_has(spark.score_by_key, {"output": "anomaly_score", "surprise": "surprise"})


def test_preset_values_are_replaced():
    assert resolved("preset", "threshold", "practice") == 0.001
    assert resolved(None, "scale", "practice") is None
    given = {"preset": "practice", "kind": "preset", "scale": [1.0], "threshold": "preset", "max_samples": "preset"}
    assert with_preset(given) == given | {"kind": "size", "threshold": 0.001}
    on_stream = {"max_samples": 256, "kind": "size", "threshold": 0.001}
    assert with_stream_preset(given) == given | on_stream
    for wrong in ("best", None, ["paper"], "preset"):
        with pytest.raises(InvalidInputError, match="preset must be one of practice, paper, but is"):
            preset_of(wrong)
