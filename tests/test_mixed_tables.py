"""Tables with text, booleans, categories and gaps, in the scikit-learn and PyOD estimators."""

import pickle
from enum import Enum, StrEnum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.utils import get_tags

import imondrian
from imondrian import InvalidInputError, IsolationMondrianForest
from imondrian.base.categories import MISSING_CODE, category_code, category_codes
from imondrian.pyod import IMForest
from imondrian.rows.mixed_tables import categorical_columns, codes_of, is_categorical, numbers_of, points_of_table
from imondrian.rows.named_rows import RowConverter

RNG = np.random.default_rng(0)
N = 120
SMALL = {"n_estimators": 5, "random_state": 0}


def mixed_frame(n=N, seed=0):
    """A pandas frame with columns of all supported types, with gaps."""
    rng = np.random.default_rng(seed)

    def with_gaps(values):
        return [None if rng.random() < 0.2 else value for value in values]

    return pd.DataFrame(
        {
            "country": with_gaps(rng.choice(["FR", "DE", "IT"], n).tolist()),
            "channel": pd.Series(with_gaps(rng.choice(["web", "shop"], n).tolist()), dtype="category"),
            "name": pd.array(with_gaps(rng.choice(["a", "b"], n).tolist()), dtype="string"),
            "is_new": rng.random(n) < 0.5,
            "is_paid": pd.array(with_gaps((rng.random(n) < 0.5).tolist()), dtype="boolean"),
            "amount": rng.normal(size=n),
            "weight": [np.nan if rng.random() < 0.2 else value for value in rng.normal(size=n)],
            "count": pd.array(with_gaps(rng.integers(0, 9, n).tolist()), dtype="Int64"),
            "price": pd.array(with_gaps(rng.normal(size=n).tolist()), dtype="Float64"),
            "objects": pd.Series(with_gaps(rng.normal(size=n).tolist()), dtype=object),
        }
    )


FRAME = mixed_frame()
CATEGORICAL = [0, 1, 2, 3, 4]


def coded(frame):
    """Convert a mixed frame to points in the most obvious way, value by value."""
    return np.array(
        [
            [
                category_code(value) if j in CATEGORICAL else np.nan if pd.isna(value) else float(value)
                for j, value in enumerate(row)
            ]
            for row in frame.astype(object).to_numpy().tolist()
        ]
    )


def test_columns_are_converted_by_their_types():
    polars = pl.from_pandas(FRAME)
    for table in (FRAME, polars, FRAME.astype(object).to_numpy()):
        assert categorical_columns(table, "auto", None) == CATEGORICAL
        np.testing.assert_array_equal(points_of_table(table, CATEGORICAL, None), coded(FRAME))


LARGE = [None, 2**53 + 1, 2**53, 2**53 + 3, -(2**62) - 1]
CATEGORY_COLUMNS = {
    "pandas Int64": (pd.array(LARGE, dtype="Int64"), LARGE),
    "pandas pyarrow": (pd.array(LARGE, dtype="int64[pyarrow]"), LARGE),
    "pandas categorical": (pd.Categorical(LARGE), LARGE),
    "polars Int64": (pl.Series(LARGE, dtype=pl.Int64), LARGE),
    "polars UInt64": (pl.Series([None, 2**64 - 1, 3], dtype=pl.UInt64), [None, 2**64 - 1, 3]),
    "masked": (np.ma.array([0, *LARGE[1:]], mask=[1, 0, 0, 0, 0]), LARGE),
    "pandas float32": (np.array([0.1, np.nan], np.float32), [np.float64(np.float32(0.1)), None]),
    "pandas Float32": (pd.array([0.1, None], dtype="Float32"), [np.float64(np.float32(0.1)), None]),
    "pandas pyarrow float": (pd.array([0.1, None], dtype="float[pyarrow]"), [np.float64(np.float32(0.1)), None]),
    "categorical of float32": (pd.Categorical(np.array([0.1, 0.5], np.float32)), [np.float64(np.float32(0.1)), 0.5]),
    "polars Float32": (pl.Series([0.1, None], dtype=pl.Float32), [np.float64(np.float32(0.1)), None]),
}


@pytest.mark.parametrize("name", CATEGORY_COLUMNS)
def test_a_category_has_one_code_on_every_path(name):
    """Integers keep all digits beside missing values, and floats have the text of their float64 value."""
    column, values = CATEGORY_COLUMNS[name]
    expected = [category_code(value) for value in values]
    ones = np.ones(len(values))
    if isinstance(column, pl.Series):
        frame, worse = (pl.DataFrame({"c": column, "v": last}) for last in (ones, [*ones[1:], np.inf]))
    elif np.ma.isMaskedArray(column):
        assert codes_of(column).tolist() == expected
        return
    else:
        frame, worse = (pd.DataFrame({"c": column, "v": last}) for last in (ones, [*ones[1:], np.inf]))
    assert points_of_table(frame, [0], None)[:, 0].tolist() == expected
    assert RowConverter(2, None, ["c"]).points(frame)[:, 0].tolist() == expected
    rows = [{"c": value, "v": 1.0} for value in values]
    assert RowConverter(2, None, ["c"]).points(rows)[:, 0].tolist() == expected
    usable, is_usable = RowConverter(2, None, ["c"]).usable_points(worse)
    assert usable[:, 0].tolist() == expected[:-1]
    assert is_usable.tolist() == [True] * (len(values) - 1) + [False]


class CountedName(str):
    """Text that counts how often it is compared with text that is not the same object."""

    __slots__ = ()
    n_compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountedName.n_compared += 1
        return str(self) == str(other)


@pytest.mark.parametrize("allows_gaps", [False, True])
def test_the_names_of_a_row_are_compared_in_linear_time(allows_gaps):
    names = [f"feature {i}" for i in range(2_000)]
    converter = RowConverter(len(names), None, [], allows_gaps=allows_gaps)
    converter.point(dict.fromkeys(names, 1.0))
    row = {CountedName(name): 2.0 for name in reversed(names)}
    CountedName.n_compared = 0
    assert (converter.point(row) == 2.0).all()
    assert CountedName.n_compared < 10 * len(names)


@pytest.mark.parametrize("make", [IsolationMondrianForest, IMForest])
def test_large_integers_in_lists_are_different_categories(make):
    """An array of a row of lists would be floats, which do not have as many digits."""
    ids = [2**53, 2**53 + 1]
    rows = [[ids[i % 20 == 0], float(x)] for i, x in enumerate(RNG.normal(size=100))]
    texts = [[str(category), x] for category, x in rows]
    scores = [make(categorical=[0], **SMALL).fit(X).decision_function(X).tolist() for X in (rows, texts)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("unit", ["s", "ns"])
@pytest.mark.parametrize("kind", ["timedelta64", "datetime64"])
def test_times_are_not_categories_in_any_unit(kind, unit):
    column = np.array([1, 2], f"{kind}[{unit}]")
    with pytest.raises(InvalidInputError, match="A category must be text, a boolean or a finite number"):
        codes_of(column)


@pytest.mark.parametrize("missing", ["median", "indicator"])
@pytest.mark.parametrize("make", [IsolationMondrianForest, IMForest])
def test_every_kind_of_table_gives_the_same_scores(make, missing):
    new = mixed_frame(40, 1)
    tables = {
        "pandas": lambda frame: frame,
        "polars": pl.from_pandas,
        "objects": lambda frame: frame.astype(object).to_numpy(),
        "lists": lambda frame: frame.astype(object).to_numpy().tolist(),
    }
    results = [
        make(missing=missing, **SMALL).fit(convert(FRAME)).decision_function(convert(new)).tolist()
        for convert in tables.values()
    ]
    assert all(scores == results[0] for scores in results)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, object])
@pytest.mark.parametrize("shape", ["array", "frame", "list"])
def test_numbers_are_treated_as_before_bit_for_bit(dtype, shape):
    """Without text, the parameters of categories and gaps have no effect."""
    numbers = (RNG.normal(size=(100, 3)) * 100).astype(dtype)
    X = {"array": numbers, "frame": pd.DataFrame(numbers, columns=list("abc")), "list": numbers.tolist()}[shape]
    new, former = (
        IsolationMondrianForest(categorical=categorical, missing=missing, **SMALL).fit(X)
        for categorical, missing in [("auto", "median"), ([], "raise")]
    )
    assert new.categorical_ == ()
    assert (new.score_samples(X) == former.score_samples(X)).all()
    forest = imondrian.MondrianForest(5, max_samples=256, scale="std", seed=new.forest_.seed)
    assert (forest.build(numbers.astype(float)).score(numbers.astype(float), "size") == -new.score_samples(X)).all()
    assert new.offset_ == former.offset_


def test_categories_by_name_index_and_mask():
    frame = pd.DataFrame({"zip": RNG.integers(0, 5, N), "amount": RNG.normal(size=N)})
    scores = [
        IsolationMondrianForest(categorical=categorical, **SMALL).fit(table).score_samples(table)
        for categorical, table in [
            (["zip"], frame),
            ([0], frame),
            ([True, False], frame),
            (np.array([0]), frame.to_numpy()),
            ("auto", frame.astype({"zip": str})),
            ("auto", frame.astype({"zip": "category"})),
        ]
    ]
    assert all((each == scores[0]).all() for each in scores)
    for wrong, message in [
        (["street"], "categorical lists the feature 'street', but no feature has this name"),
        ([2], "categorical contains 2, but features are numbered from 0 to 1"),
        ([True], "categorical is a mask of 1 features, but there are 2"),
        ([0.5], "but contains 0.5"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            IsolationMondrianForest(categorical=wrong, **SMALL).fit(frame)


@pytest.mark.parametrize("make", [IsolationMondrianForest, IMForest])
def test_text_in_a_numeric_column_is_named_with_column_row_and_value(make):
    frame = pd.DataFrame({"country": ["FR", "DE"] * 20, "amount": RNG.normal(size=40)})
    model = make(**SMALL).fit(frame)
    wrong = frame.astype({"amount": object})
    wrong.loc[7, "amount"] = "12,5"
    with pytest.raises(
        InvalidInputError, match="Row 7 of the feature 'amount' must be a number or missing, but is '12,5'"
    ):
        model.decision_function(wrong)
    dates = pd.DataFrame({"country": ["FR"] * 2, "amount": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    for method in (model.decision_function, make(**SMALL).fit):
        with pytest.raises(InvalidInputError, match="The feature 'amount' must be numeric, but its type is datetime64"):
            method(dates)


@pytest.mark.parametrize("make", [IsolationMondrianForest, IMForest])
def test_a_row_without_any_value_is_named(make):
    frame = pd.DataFrame({"country": ["FR", None, "DE"], "amount": [1.0, np.nan, 2.0]})
    for table in (frame, frame[["amount"]], frame[["country"]]):
        with pytest.raises(InvalidInputError, match=r"Row 1 of X has no value: everything is missing"):
            make(**SMALL).fit(table)
        with pytest.raises(InvalidInputError, match=r"Row 1 of X has no value: everything is missing"):
            make(**SMALL).fit(table.iloc[[0, 2]]).decision_function(table)


def test_names_are_checked_as_scikit_learn_does():
    model = IsolationMondrianForest(**SMALL).fit(FRAME)
    assert model.feature_names_in_.tolist() == list(FRAME.columns)
    with pytest.raises(ValueError, match="The feature names should match"):
        model.predict(FRAME[list(reversed(FRAME.columns))])
    with pytest.raises(ValueError, match="The feature names should match"):
        model.predict(FRAME.drop(columns="count"))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(FRAME.astype(object).to_numpy())


@pytest.mark.parametrize("missing", ["median", "indicator"])
def test_an_estimator_is_restored_with_names_categories_and_medians(tmp_path, missing):
    new = mixed_frame(60, 2)
    model = IsolationMondrianForest(missing=missing, **SMALL).fit(FRAME)
    imondrian.save(model, tmp_path / "model.imf")
    resumed = imondrian.load(tmp_path / "model.imf")
    assert resumed.categorical_ == model.categorical_ == tuple(CATEGORICAL)
    assert (resumed.n_features_in_, resumed.missing) == (10, missing)
    assert resumed.feature_names_in_.tolist() == list(FRAME.columns)
    pickled = pickle.loads(pickle.dumps(model))  # noqa: S301
    for other in (resumed, pickled):
        assert (other.score_samples(new) == model.score_samples(new)).all()
        assert other.offset_ == model.offset_
        pd.testing.assert_frame_equal(other.explain(new), model.explain(new))
    model.partial_fit(new)
    assert (resumed.partial_fit(new).score_samples(FRAME) == model.score_samples(FRAME)).all()
    imondrian.save(resumed, tmp_path / "model.imf")
    assert (imondrian.load(tmp_path / "model.imf").score_samples(FRAME) == model.score_samples(FRAME)).all()
    assert (clone(model).fit(FRAME).score_samples(new) == pickled.score_samples(new)).all()


def test_explanations_have_one_part_per_column():
    for missing in ("median", "indicator"):
        model = IsolationMondrianForest(missing=missing, **SMALL).fit(FRAME)
        parts = model.explain(FRAME)
        np.testing.assert_allclose(np.abs(parts).sum(axis=1), -model.score_samples(FRAME))
        assert (parts.iloc[:, CATEGORICAL] >= 0.0).all(axis=None)
        assert model.rescore()[0].shape[1] == 10


def test_partial_fit_and_forget_accept_mixed_tables():
    model = IsolationMondrianForest(max_samples=None, **SMALL).partial_fit(FRAME.iloc[:60])
    model.partial_fit(FRAME.iloc[60:])
    assert model.forest_.n_points == N
    complete = FRAME.dropna()
    assert model.forget(complete).forest_.n_points == N - len(complete)


def test_missing_numbers_are_refused_on_request():
    model = IsolationMondrianForest(missing="raise", **SMALL)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(FRAME)
    with pytest.raises(ValueError, match="NaN"):
        model.fit([[1.0], [np.nan]])
    tags = get_tags(model).input_tags
    assert (tags.allow_nan, tags.categorical, tags.string) == (False, True, True)
    assert get_tags(IsolationMondrianForest()).input_tags.allow_nan


def test_an_indicator_finds_a_missing_value():
    points = RNG.normal(size=(500, 4))
    points[0, 2] = np.nan
    for make in (IsolationMondrianForest, IMForest):
        ranks = {}
        for missing in ("median", "indicator"):
            model = make(missing=missing, random_state=0).fit(points)
            scores = model.decision_function(points) * (-1 if make is IsolationMondrianForest else 1)
            ranks[missing] = int((scores > scores[0]).sum())
        assert ranks["indicator"] < 10 < ranks["median"]
        assert np.argmax(np.abs(model.explain(points[:1])[0])) == 2


# -- single columns ---------------------------------------------------------------------------------------------------

VALUES = st.one_of(st.text(max_size=2), st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.none())


@given(values=st.lists(VALUES, min_size=1))
def test_a_column_of_objects_is_categorical_if_it_has_text_or_booleans(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    assert is_categorical(column) == any(isinstance(value, (str, bool)) for value in values)
    if is_categorical(column):
        np.testing.assert_array_equal(points_of_table(column[:, None], [0], None)[:, 0], category_codes(values))
    else:
        expected = [np.nan if value is None else float(value) for value in values]
        np.testing.assert_array_equal(numbers_of(column, "x"), expected)


class Color(Enum):
    RED = "red"


class Size(StrEnum):
    BIG = "big"


@pytest.mark.parametrize(("member", "text"), [(Color.RED, "red"), (Size.BIG, "big"), (np.str_("red"), "red")])
def test_members_of_enumerations_are_their_values(member, text):
    assert category_code(member) == category_code(text)
    assert is_categorical(np.array([member, None], dtype=object))


def test_masked_values_are_missing():
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    np.testing.assert_array_equal(numbers_of(masked, "x"), [1.0, np.nan])
    assert category_code(np.ma.masked) == MISSING_CODE


OTHER_TABLES = {
    "pyarrow Table": pa.table,
    "pyarrow RecordBatch": pa.RecordBatch.from_pydict,
    "polars LazyFrame": pl.LazyFrame,
    "builtins dict": dict,
}


@pytest.mark.parametrize("kind", OTHER_TABLES)
@pytest.mark.parametrize("model", [IsolationMondrianForest, IMForest])
def test_other_tables_are_refused_instead_of_losing_their_names(kind, model):
    """As arrays, pyarrow tables would also lose large integers and booleans."""
    columns = {"b": [1.0, 2.0, 3.0], "a": [3.0, 1.0, 2.0]}
    table = OTHER_TABLES[kind](columns)
    fitted = model(n_estimators=2).fit(pl.DataFrame(columns))
    for call in (model(n_estimators=2).fit, fitted.decision_function, fitted.explain):
        with pytest.raises(InvalidInputError, match=f"data frame of pandas or polars, but is a {kind}: convert it"):
            call(table)
