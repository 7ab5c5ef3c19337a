"""Categories and missing numbers on streams: results do not depend on calls, files or threads."""

import base64
import json
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import imondrian
from imondrian import InvalidInputError, StreamDetector
from imondrian.base.categories import MISSING_CODE, category_code, is_missing
from imondrian.forest.samplers import Window
from imondrian.model_files import as_fitted_model
from imondrian.models import storage
from imondrian.rows.named_rows import CodedRows
from imondrian.stream.row_layout import RowLayout
from imondrian.stream.stream_gaps import StreamGaps

NAMES = ["country", "amount", "weight"]
SMALL = {"n_features": 3, "window": 64, "max_samples": 16, "n_trees": 7, "threshold": 0.05, "seed": 3}
MIXED = SMALL | {"categorical": ["country"]}
VARIANTS = [
    {},
    {"missing": "indicator"},
    {"missing": "previous"},
    {"shingle": 3},
    {"shingle": 2, "missing": "indicator"},
    {"shingle": 2, "missing": "previous"},
    {"learn_anomalies": False, "warm_up": 0},
    {"learn_anomalies": False, "missing": "indicator"},
    {"learn_anomalies": False, "missing": "previous"},
    {"window": 5, "max_samples": 2},
    {"window": 1},
    {"preset": "paper", "threshold": "kmeans"},
    {"scale": [1.0, 0.5, 2.0], "missing": "indicator"},
    {"categorical": [0]},
    {"on_error": "skip"},
]


def rows_of(n=300, seed=0, share=0.3):
    """Rows with text and gaps; in the middle, `amount` is missing most of the time."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        share_missing = 0.8 if n // 3 < i < n // 2 else share
        values = [
            None if rng.random() < 0.1 else str(rng.choice(["FR", "DE", "IT"])),
            float("nan") if rng.random() < share_missing else rng.normal() + (i > n // 2) * 3.0,
            None if rng.random() < share else rng.normal(),
        ]
        if all(map(is_missing, values)):
            values[2] = 1.0
        rows.append(dict(zip(NAMES, values, strict=True)))
    return rows


ROWS = rows_of()


def detector_of(**settings):
    return StreamDetector(**(MIXED | settings))


def state_of(detector):
    """Return the complete state of a detector."""
    (_, trees, arrays), notes = detector.snapshot()
    return [a.tobytes() for a in (*trees, *arrays.values())], json.dumps(notes)


def assert_same(results, expected):
    for ours, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_process_many_equals_process_bit_for_bit(variant):
    many, one = detector_of(**variant), detector_of(**variant)
    results = many.process_many(ROWS)
    single = [one.process(row) for row in ROWS]
    single = [result._replace(incident=-1 if result.incident is None else result.incident) for result in single]
    assert_same(results, [np.array(column) for column in zip(*single, strict=True)])
    assert state_of(many) == state_of(one)
    assert many.n_missing == sum(is_missing(row[name]) for row in ROWS for name in NAMES[1:])


@given(
    ends=st.lists(st.integers(0, 200), max_size=5), n_jobs=st.sampled_from([1, 2]), variant=st.sampled_from(VARIANTS)
)
def test_results_do_not_depend_on_the_division_into_calls(ends, n_jobs, variant):
    whole, pieces = detector_of(**variant), detector_of(**variant, n_jobs=n_jobs)
    expected = whole.process_many(ROWS[:200])
    bounds = [0, *sorted(ends), 200]
    parts = [pieces.process_many(ROWS[a:b]) for a, b in pairwise(bounds)]
    assert_same([np.concatenate(columns) for columns in zip(*parts, strict=True)], expected)
    assert state_of(whole)[0] == state_of(pieces)[0]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_before", [0, 1, 170])
def test_saved_and_resumed_equals_never_saved(tmp_path, variant, n_before):
    reference = detector_of(**variant)
    reference.process_many(ROWS[:n_before])
    imondrian.save(reference, tmp_path / "detector.imf")
    resumed = imondrian.load(tmp_path / "detector.imf")
    assert repr(resumed) == repr(reference)
    assert state_of(resumed) == state_of(reference)
    assert (resumed.n_missing, resumed.feature_names) == (reference.n_missing, reference.feature_names)
    assert_same(resumed.process_many(ROWS[n_before:]), reference.process_many(ROWS[n_before:]))
    assert state_of(resumed) == state_of(reference)


@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_does_not_change(variant):
    detector = detector_of(**variant)
    n_bytes = detector.n_bytes
    detector.process_many(ROWS)
    assert detector.n_bytes == n_bytes


# -- what replaces a gap ----------------------------------------------------------------------------------------------


def slow_medians(rows, window):
    """Fill the gaps of a stream of numbers as documented, in the most obvious way."""
    filled, medians, expires = [], [0.0] * rows.shape[1], 0
    for number, row in enumerate(rows):
        if np.isnan(row).any() and number >= expires:
            for j in range(rows.shape[1]):
                observed = rows[max(number - window, 0) : number, j]
                observed = observed[~np.isnan(observed)]
                medians[j] = np.median(observed) if observed.size else medians[j]
            expires = number + max(min(number, window) // 8, 1)
        filled.append(np.where(np.isnan(row), medians, row))
    return np.array(filled)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7])
@pytest.mark.parametrize("window", [1, 7, 64])
def test_a_gap_takes_the_median_of_the_window(share, window):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 2)) + np.linspace(0.0, 30.0, 300)[:, None]
    rows[rng.random((300, 2)) < share] = np.nan
    rows[np.isnan(rows).all(axis=1), 0] = 1.0
    gappy, complete = (StreamDetector(2, window=window, n_trees=5, missing=rule) for rule in ("median", "raise"))
    filled = slow_medians(rows, window)
    assert_same(gappy.process_many(rows), complete.process_many(filled))
    np.testing.assert_array_equal(gappy.rescore()[0], filled[-window:])
    assert gappy.n_missing == np.isnan(rows).sum()


def test_medians_follow_a_stream_in_which_most_values_are_missing():
    """Replaced values do not count: otherwise the median would stay where it is."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=2000), np.repeat([0.0, 50.0], 1000) + rng.normal(size=2000)])
    rows[rng.random(2000) < 0.8, 1] = np.nan
    detector = StreamDetector(2, window=256, n_trees=3)
    detector.process_many(rows)
    window = detector.rescore()[0][:, 1]
    assert window.min() > 40.0


def test_previous_repeats_the_last_value():
    detector = StreamDetector(2, window=8, n_trees=2, missing="previous")
    nan = float("nan")
    detector.process([1.0, nan])
    detector.process_many([[nan, 5.0], [2.0, nan], [nan, 7.0], [nan, 8.0]])
    expected = [[1.0, 0.0], [1.0, 5.0], [2.0, 5.0], [2.0, 7.0], [2.0, 8.0]]
    assert detector.rescore()[0].tolist() == expected
    assert detector.n_missing == 5


def test_an_indicator_finds_a_missing_value():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 3))
    unusual = [0.0, np.nan, 0.0]
    scores = {}
    for missing in ("median", "indicator"):
        detector = StreamDetector(3, window=256, missing=missing)
        detector.process_many(rows)
        scores[missing] = detector.score([unusual])[0]
        parts = detector.explain(unusual)
        assert sum(map(abs, parts.values())) == pytest.approx(scores[missing])
    assert scores["median"] < 0.5 < scores["indicator"]
    assert max(parts, key=lambda j: abs(parts[j])) == 1
    assert detector.rescore()[0].shape == (256, 3)


def test_scoring_fills_like_processing_and_changes_nothing():
    for missing in ("median", "indicator", "previous"):
        detector = detector_of(missing=missing)
        for i, row in enumerate(ROWS):
            if i % 10 == 9:
                before = state_of(detector)
                score, parts = detector.score([row])[0], detector.explain(row)
                assert sum(map(abs, parts.values())) == pytest.approx(score)
                assert state_of(detector) == before
                assert detector.process(row).score == score
            else:
                detector.process(row)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n_before", [0, 1, 70, 200])
def test_scoring_many_rows_scores_each_as_if_it_came_next(variant, n_before):
    detector = detector_of(**variant)
    detector.process_many(ROWS[:n_before])
    named = [*ROWS[:1], *ROWS[200:260]]  # the first row has all names
    np.testing.assert_array_equal(detector.score(named), [detector.score([row])[0] for row in named])


class Calls:
    """Counts the calls of methods."""

    def __init__(self, monkeypatch):
        self._patch, self.n = monkeypatch, {}

    def count(self, owner, name):
        method = getattr(owner, name)
        self.n[name] = 0

        def counted(*args, **kwargs):
            self.n[name] += 1
            return method(*args, **kwargs)

        self._patch.setattr(owner, name, counted)


@pytest.mark.parametrize("missing", ["median", "indicator", "previous"])
@pytest.mark.parametrize("categorical", [[], [1]])
@pytest.mark.parametrize("call", ["score", "forget", "process_many"])
def test_rows_with_gaps_do_not_read_the_whole_window_each(monkeypatch, missing, categorical, call):
    """The window is read once per call to compute medians, and never for the previous row."""
    settings = SMALL | {"window": 512, "threshold": "surprise 300", "warm_up": 8, "missing": missing}
    detector = StreamDetector(**settings, categorical=categorical, learn_anomalies=False)
    detector.process_many(np.random.default_rng(0).normal(size=(520, 3)).tolist())  # medians have not been computed yet
    calls = Calls(monkeypatch)
    calls.count(StreamGaps, "_medians_of")
    calls.count(Window, "points")
    calls.count(Window, "_oldest_first")
    calls.count(Window, "n_points")
    rows = [[float(i), 1.0, None] for i in range(40)]
    if call == "forget":
        with pytest.raises(InvalidInputError, match="is not in the forest"):
            detector.forget(rows)
    else:
        getattr(detector, call)(rows)
    assert calls.n == {"_medians_of": missing != "previous", "points": 0, "_oldest_first": 0, "n_points": 0}


@given(
    blocks=st.lists(
        st.tuples(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=7), st.booleans()), max_size=12
    ),
    window=st.integers(1, 7),
)
def test_marks_that_are_not_stored_have_no_effect(blocks, window):
    """A block is marked before it is learned; if it is not learned, the old object is used again."""
    new = StreamGaps(RowLayout(2, (), (), 1), "median", window)
    gaps, learned = new, []
    for rows, is_learned in blocks:
        is_gap = np.array(rows)[:window]
        marked = gaps.marked(np.where(is_gap, np.nan, 1.0), len(learned))
        assert marked._masks is new._masks  # the marks are not copied
        if is_learned:
            gaps, learned = marked, learned + is_gap.tolist()
        masks = np.array(learned[-window:], np.bool_)
        expected = base64.b64encode(np.packbits(masks).tobytes()).decode() if masks.any() else ""
        assert gaps.state(len(learned))["replaced"] == expected
        state = gaps.state(len(learned))
        assert new.restored(state, len(learned)).state(len(learned)) == state


def test_previous_skips_rows_that_were_forgotten():
    rows = [[float(i), 10.0 + i] for i in range(11)]
    for n_forgotten in range(1, 9):
        detector = StreamDetector(2, window=8, n_trees=2, missing="previous")
        detector.process_many(rows)
        detector.forget(rows[-n_forgotten:])
        detector.process([None, 0.5])
        last = 0.0 if n_forgotten == 8 else 10.0 - n_forgotten  # 0 if nothing is left
        assert detector.rescore()[0][-1].tolist() == [last, 0.5]


def test_filled_rows_can_be_forgotten():
    detector = StreamDetector(2, window=16, n_trees=3)
    detector.process_many([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
    detector.forget(detector.rescore()[0][1:2])
    assert detector.forest.n_points == 2
    detector.process([np.nan, 1.0])
    assert detector.rescore()[0][-1].tolist() == [3.0, 1.0]


@pytest.mark.parametrize("missing", ["median", "indicator", "previous"])
@pytest.mark.parametrize("n_built", [1, 20, 300, 330, 400])
def test_gaps_of_a_forest_that_was_built_again_have_no_effect(missing, n_built):
    """No value of the new points is a replacement, and medians are those of the new points."""
    detector, new = detector_of(missing=missing), detector_of(missing=missing)
    detector.process_many(ROWS)
    n_missing = detector.n_missing
    points = np.tile([[category_code("FR"), 7.0, 8.0]], (n_built, 1)) + np.arange(n_built)[:, None] * [0.0, 1.0, 1.0]
    if missing == "indicator":
        points = np.hstack([points, np.zeros((n_built, 2))])
    for each in (detector, new):
        each.forest.build(points)
    assert imondrian.model_files.from_bytes(imondrian.model_files.to_bytes(detector)).n_missing == n_missing
    row = {"country": "FR", "amount": None, "weight": 1.0}
    np.testing.assert_array_equal(detector.score([row]), new.score([row]))
    detector.process_many(ROWS[:30])
    new.process_many(ROWS[:30])
    np.testing.assert_array_equal(detector.rescore()[0], new.rescore()[0])
    assert detector.notes()["gaps"] | {"n_missing": 0} == new.notes()["gaps"] | {"n_missing": 0}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_point_of_the_window_can_be_forgotten(variant):
    """As `rescore` returns it or, with indicators or a shingle, as the forest holds it."""
    detector = detector_of(**variant)
    detector.process_many(ROWS[:120])
    while detector.forest.n_points:
        i = detector.forest.n_points * 2 // 3
        rows, points = detector.rescore()[0], detector.forest.points()
        if "shingle" in variant or variant.get("missing") == "indicator":
            detector.forest.forget(points[i : i + 1])
        else:
            detector.forget(rows[i : i + 1])
        left, removed = detector.forest.points(), np.flatnonzero((points == points[i]).all(axis=1))[0]
        np.testing.assert_array_equal(left, np.delete(points, removed, axis=0))  # of copies, the oldest


# -- rows -------------------------------------------------------------------------------------------------------------


def test_rows_of_any_type_give_the_same_scores():
    expected = detector_of().process_many(ROWS[:80])
    frame = pd.DataFrame(ROWS[:80])
    tables = {
        "pandas": frame,
        "nullable": frame.convert_dtypes(),
        "category": frame.astype({"country": "category"}),
        "polars": pl.DataFrame(ROWS[:80], strict=False),
        "absent keys": [ROWS[0], *({k: v for k, v in row.items() if v is not None} for row in ROWS[1:80])],
        "other order": [ROWS[0], *({k: row[k] for k in reversed(NAMES)} for row in ROWS[1:80])],
        "generator": iter(ROWS[:80]),
        "series": [row for _, row in frame.iterrows()],
    }
    for table in tables.values():
        detector = detector_of()
        assert_same(detector.process_many(table), expected)
        assert detector.feature_names == NAMES
    lists = [[row[name] for name in NAMES] for row in ROWS[:80]]
    codes = np.array([[category_code(c), np.nan if a is None else a, np.nan if w is None else w] for c, a, w in lists])
    for table in (lists, np.array(lists, dtype=object), codes.view(CodedRows)):
        assert_same(detector_of(categorical=[0]).process_many(table), expected)
        detector = detector_of(categorical=[True, False, False])
        assert [detector.process(row).score for row in table] == expected.score.tolist()


def test_named_categories_come_first():
    detector = StreamDetector(3, n_trees=3, categorical=["c", "a"])
    with pytest.raises(InvalidInputError, match="because categorical lists the name 'c'"):
        detector.process([1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="x has no feature 'c'"):
        detector.process({"a": 1, "b": 2.0, "d": 3})
    detector.process({"a": "x", "b": 2.0, "c": True})
    detector.process([False, 7, 3.0])
    assert detector.feature_names == ["c", "a", "b"]
    expected = [[category_code("true"), category_code("x"), 2.0], [category_code("false"), category_code("7"), 3.0]]
    assert detector.rescore()[0].tolist() == expected


def test_a_missing_category_is_a_category():
    detector = StreamDetector(2, n_trees=3, categorical=[0], missing="raise")
    detector.process_many([["a", 1.0], [None, 2.0]])
    assert detector.rescore()[0][1].tolist() == [MISSING_CODE, 2.0]
    assert detector.n_missing == 0
    with pytest.raises(InvalidInputError, match="The feature 1 must be a number, but is None"):
        detector.process(["a", None])


@pytest.mark.parametrize("row", [[None, None], [None, float("nan")], {0: None, 1: pd.NA}, [np.nan, np.nan]])
def test_a_row_without_any_value_cannot_be_used(row):
    for settings in ({}, {"categorical": [0]}, {"categorical": [0, 1]}, {"missing": "previous"}):
        detector = StreamDetector(2, n_trees=3, on_error="skip", **settings)
        assert np.isnan(detector.process(row).score)
        assert np.isnan(detector.process_many([row, [1.0, 2.0]]).score).tolist() == [True, False]
        assert (detector.n_skipped, detector.n_missing) == (2, 0)
        with pytest.raises(InvalidInputError, match="has no value: everything is missing"):
            detector.score([row])


def test_text_in_a_numeric_feature_is_named():
    detector = detector_of()
    detector.process_many(ROWS[:10])
    with pytest.raises(InvalidInputError, match="The feature 'amount' must be a number, but is 'x'"):
        detector.process({"country": "FR", "amount": "x", "weight": 1.0})
    frame = pd.DataFrame({"country": ["FR", "FR"], "amount": [1.0, "x"], "weight": [1.0, 2.0]})
    with pytest.raises(
        InvalidInputError, match="Row 1 of the feature 'amount' must be a number or missing, but is 'x'"
    ):
        detector.process_many(frame)
    with pytest.raises(InvalidInputError, match=r"A category must be text, .* but one is \[1\]"):
        detector.process({"country": [1], "amount": 1.0, "weight": 1.0})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"categorical": [3]}, "categorical contains 3, but features are numbered from 0 to 2"),
        ({"categorical": [-1]}, "categorical contains -1"),
        ({"categorical": [0.5]}, "categorical must contain names or indices of features, but contains 0.5"),
        ({"categorical": "country"}, "categorical must be a list of features, but is 'country'"),
        ({"categorical": None}, "categorical must be a list of features, but is None"),
        ({"categorical": [True]}, "categorical is a mask of 1 features, but there are 3"),
        ({"categorical": ["a", "a"]}, "categorical must be at most 3 different names"),
        ({"categorical": ["a", 1]}, "categorical lists the feature 'a', but no feature has this name"),
        ({"missing": "mean"}, "missing must be one of .*, but is 'mean'"),
    ],
)
def test_bad_parameters_are_named(settings, message):
    with pytest.raises(InvalidInputError, match=message):
        StreamDetector(**(SMALL | settings))


def test_a_shingle_repeats_the_categories():
    row = {"n_features": 3, "categorical": ["a"], "missing": "indicator"}
    layout = RowLayout.of({**row, "shingle": 2, "preset": "practice"})
    assert (layout.width, layout.n_values, layout.categorical_values) == (5, 10, [0, 3, 4, 5, 8, 9])
    assert layout.forest_scale([1, 2, 3, 4, 5, 6]) == [1, 2, 3, 1, 1, 4, 5, 6, 1, 1]
    detector = detector_of(shingle=2, missing="indicator")
    assert detector.forest.categorical == (0, 3, 4, 5, 8, 9)
    detector.process_many(ROWS[:50])
    assert list(detector.explain(ROWS[50])) == [(name, ago) for ago in (1, 0) for name in NAMES]
    assert detector.rescore()[0].shape == (49, 6)


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_without_the_new_parameters_refuses_missing_numbers(tmp_path):
    rows = np.random.default_rng(0).normal(size=(100, 3))
    detector = StreamDetector(**SMALL, missing="raise")
    detector.process_many(rows)
    notes = {name: value for name, value in detector.notes().items() if name != "gaps"}
    notes["parameters"] = {k: v for k, v in notes["parameters"].items() if k not in ("categorical", "missing")}
    storage.save(detector.forest.snapshot(), tmp_path / "detector.imf", {"StreamDetector": notes})
    resumed = imondrian.load(tmp_path / "detector.imf")
    assert repr(resumed) == repr(detector)
    assert_same(resumed.process_many(rows), detector.process_many(rows))
    with pytest.raises(InvalidInputError, match="nan"):
        resumed.process([1.0, np.nan, 2.0])


@pytest.mark.parametrize(
    "damage",
    [
        {"medians": [0.0]},
        {"medians": [0.0, float("inf"), 0.0]},
        {"expires": -1},
        {"expires": 10**6},
        {"n_missing": -1},
        {"n_missing": 0.5},
        {"replaced": "AAAA"},
        {"replaced": "!"},
        {"replaced": "\u00e9"},
        {"replaced": [[299, [0]]]},
        {"replaced": None},
    ],
)
def test_damaged_notes_are_rejected(tmp_path, damage):
    detector = detector_of()
    detector.process_many(ROWS)
    notes = detector.notes()
    notes["gaps"] |= damage
    storage.save(detector.forest.snapshot(), tmp_path / "detector.imf", {"StreamDetector": notes})
    with pytest.raises(imondrian.DamagedFileError, match=r"detector\.imf"):
        imondrian.load(tmp_path / "detector.imf")


@pytest.mark.parametrize("change", [{"categorical": []}, {"categorical": [1]}, {"missing": "indicator"}])
def test_a_forest_with_other_categories_is_rejected(tmp_path, change):
    detector = detector_of()
    detector.process_many(ROWS[:50])
    notes = detector.notes()
    notes["parameters"] |= change
    storage.save(detector.forest.snapshot(), tmp_path / "detector.imf", {"StreamDetector": notes})
    with pytest.raises(imondrian.DamagedFileError, match="does not match"):
        imondrian.load(tmp_path / "detector.imf")


def test_gaps_that_have_left_the_window_are_not_stored():
    layout = RowLayout(2, (), (), 1)
    gaps = StreamGaps(layout, "median", 4).marked(np.array([[np.nan, 1.0], [1.0, 1.0], [1.0, np.nan]]), 0)
    assert gaps.state(3)["replaced"] == base64.b64encode(bytes([0b100001_00])).decode()
    assert gaps.state(5)["replaced"] == base64.b64encode(bytes([0b00010000])).decode()
    assert gaps.state(8)["replaced"] == ""


def test_a_window_full_of_gaps_fits_into_the_header_of_a_file(tmp_path):
    detector = StreamDetector(n_features=2, window=70_000, n_trees=1, max_samples=2)
    detector.process_many(np.tile([[np.nan, 1.0], [2.0, np.nan]], (35_000, 1)))
    imondrian.save(detector, tmp_path / "a.imf")
    assert state_of(imondrian.load(tmp_path / "a.imf")) == state_of(detector)


@pytest.mark.parametrize("missing", ["median", "indicator", "previous", "raise"])
def test_a_detector_as_a_fitted_model_scores_rows_with_gaps(missing):
    detector = detector_of(missing=missing, on_error="skip", max_samples=None, preset="paper")
    detector.process_many(ROWS)
    model = as_fitted_model(detector, "detector")
    assert (model.n_features, model.categorical, model.feature_names) == (3, (0,), NAMES)
    points = np.array([[category_code("FR"), 1.0, 2.0], [MISSING_CODE, np.nan, 2.0], [MISSING_CODE, np.nan, np.nan]])
    scores, parts = model.score(points), model.explain(points)
    assert np.isnan(scores).tolist() == [False, missing == "raise", True]
    np.testing.assert_allclose(np.abs(parts).sum(axis=1), scores)
    assert scores[0] == pytest.approx(detector.score([{"country": "FR", "amount": 1.0, "weight": 2.0}])[0])
