"""Text, booleans, codes and gaps on Spark: the same results as on one machine, bit for bit."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import functions as F

import imondrian
from imondrian import InvalidInputError, MondrianForest
from imondrian import IsolationMondrianForest as LocalForest
from imondrian.base.categories import MISSING_CODE, category_codes
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models.distributed import Samples, distinct_rows, new_sampled_forest
from imondrian.models.explanations import Expectations, reasons_of
from imondrian.rows.mixed_tables import points_of_table
from imondrian.spark import IsolationMondrianForest, fit, fit_by_key, score, score_by_key
from imondrian.spark.arrow_points import coded_column, points_of, problem_with, usable_rows
from imondrian.spark.point_columns import Features
from imondrian.spark.sampled_model import model_on_samples
from tests.spark.conftest import scores_of
from tests.spark.mixed_rows import CATEGORICAL, MIXED, MIXED_SCHEMA, mixed_rows, mixed_table

pytestmark = pytest.mark.spark

SETTINGS = {"n_trees": 10, "max_samples": 32, "seed": 5, "categorical": ["code"]}


@pytest.fixture(scope="module")
def rows():
    return mixed_rows()


@pytest.fixture(scope="module")
def table(rows):
    return mixed_table(rows)


@pytest.fixture(scope="module")
def points(table):
    return points_of_table(table, CATEGORICAL, MIXED)


@pytest.fixture(scope="module")
def mixed(spark, rows):
    return spark.createDataFrame(rows, MIXED_SCHEMA).cache()


@pytest.fixture(scope="module")
def model(mixed):
    return fit(mixed, MIXED, **SETTINGS)


def model_on_one_machine(points, model, medians_of=None):
    """Fit a forest on one machine to the same samples, with the parameters of a model that Spark fitted."""
    samples = Samples(new_sampled_forest(10, 32, "std", 5, CATEGORICAL), points.shape[1])
    samples.offer(*distinct_rows(points))
    drawn = samples.drawn()
    pooled = drawn.points.reshape(-1, points.shape[1])
    return model_on_samples(drawn, pooled if medians_of is None else medians_of, model.parameters, 5, MIXED)


# -- one forest -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_partitions", [1, 2, 7])
def test_the_forest_is_the_same_for_any_partitions_and_on_one_machine(mixed, model, points, n_partitions):
    again = fit(mixed.repartition(n_partitions), MIXED, **SETTINGS)
    assert to_bytes(again) == to_bytes(model)
    local = model_on_one_machine(points, again.fitted_model())
    assert to_bytes(local.forest) == to_bytes(again.forest_)
    np.testing.assert_array_equal(local.fill, again.fitted_model().fill)


def test_the_model_is_an_ordinary_estimator(model, table, tmp_path):
    assert (model.categorical_, list(model.feature_names_in_), model.missing) == ((0, 1, 2), MIXED, "median")
    imondrian.save(model, tmp_path / "model.imf")
    again = imondrian.load(tmp_path / "model.imf")
    np.testing.assert_array_equal(again.score_samples(table), model.score_samples(table))


@pytest.mark.parametrize("n_partitions", [1, 2, 7])
def test_scores_and_explanations_are_the_same_as_on_one_machine(mixed, model, table, n_partitions):
    scored = score(mixed.repartition(n_partitions), model, label="odd", explain=True).cache()
    np.testing.assert_array_equal(scores_of(scored).astype(float), -model.score_samples(table))
    np.testing.assert_array_equal(scores_of(scored, "odd").astype(bool), model.predict(table) == -1)
    parts = [[each[name] for name in MIXED] for each in scores_of(scored, "explanation")]
    np.testing.assert_array_equal(parts, model.explain(table).to_numpy())


def test_categories_and_gaps_of_all_rows_are_counted(mixed, model, table):
    local = LocalForest(n_estimators=2, max_samples=32, categorical=CATEGORICAL).fit(table).forest_
    for j, name in enumerate(MIXED[:3]):
        codes = category_codes([*table[name], "never seen"])
        for ours, theirs in zip(model.forest_.category_counts(j, codes), local.category_counts(j, codes), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    marked = fit(mixed, MIXED, **SETTINGS, missing="indicator")
    n_gaps = [int(table[name].isna().sum()) for name in ("amount", "price")]
    assert marked.fitted_model().indicators == (3, 4)
    assert [marked.forest_.category_counts(j, np.ones(1))[0][0] for j in (6, 7)] == n_gaps
    np.testing.assert_array_equal(scores_of(score(mixed, marked)).astype(float), -marked.score_samples(table))


def test_medians_are_exact_if_a_tree_holds_all_rows(mixed, table):
    names = ["amount", "price", "ratio"]
    model = fit(mixed, names, 2, 1000)
    exact = [float(np.median(table[name].dropna().astype(float))) for name in names]
    assert model.fitted_model().fill.tolist() == exact


def test_explanations_in_words_are_the_same_as_on_one_machine(mixed, model, table, points):
    found = score(mixed, model, explain_text=True).orderBy("id").collect()
    expectations, parts = Expectations(model.forest_), model.explain(table).to_numpy()
    held = model.fitted_model().points_of_forest(points)
    for i in (17, int(np.argmax([row.anomaly_score for row in found]))):
        texts = {0: table["country"][i], 1: str(table["paid"][i]).lower(), 2: str(table["code"][i])}
        reasons = reasons_of(parts[i], points[i], MIXED, expectations=expectations, point=held[i], texts=texts)
        assert found[i].explanation_text == "; ".join(map(str, reasons))
    assert "country = KP (1 in 400)" in found[17].explanation_text
    is_explained = [row.explanation_text is not None for row in found]
    np.testing.assert_array_equal(is_explained, model.predict(table) == -1)


def test_new_categories_are_never_seen(spark, model):
    new = spark.createDataFrame([(0, 0, "XX", True, 77, 50.0, None, 0.5)], MIXED_SCHEMA)
    assert "code = 77 (never seen)" in score(new, model, explain_text="why").first().why


def test_arrays_may_contain_categories(mixed, points):
    chosen = ["code", "ratio"]
    arrays = mixed.select("id", F.array(*(F.col(name).cast("double") for name in chosen)).alias("values"))
    ours = fit(arrays, "values", 5, 16, categorical=[0])
    theirs = fit(mixed.select("id", "code", F.col("ratio").cast("double")), chosen, 5, 16, categorical=["code"])
    assert to_bytes(ours.forest_) == to_bytes(theirs.forest_)
    np.testing.assert_array_equal(
        scores_of(score(arrays, ours, "values")).astype(float), ours.forest_.score(points[:, [2, 5]], "size")
    )
    coded = arrays.select("id", coded_column(F.col("values"), Features(None, 2, (0,))).alias("point"))
    np.testing.assert_array_equal(np.vstack(scores_of(coded, "point")).astype(float), points[:, [2, 5]])


def test_booleans_are_numbers_in_a_model_of_numbers(mixed):
    forest = MondrianForest(5, seed=1).build([[0.0, 0.5], [1.0, 0.25], [1.0, 0.75]])
    known = mixed.where("paid IS NOT NULL")
    points = np.array([[float(row.paid), row.ratio] for row in known.orderBy("id").collect()])
    scored = score(known, forest, ["paid", "ratio"])
    np.testing.assert_array_equal(scores_of(scored).astype(float), forest.score(points))


def test_rows_without_a_value_and_infinite_codes_are_unusable(spark):
    values = [("FR", 1.0, 2.0), (None, float("nan"), None), ("FR", float("inf"), 1.0), (None, None, 3.0)] * 5
    rows = spark.createDataFrame(values, "a string, b double, c double")
    with pytest.raises(InvalidInputError, match=r"10 of 20 rows cannot be used: "):
        fit(rows, ["a", "b", "c"], 3, 8, categorical=["b"])
    with pytest.warns(UserWarning, match="10 of 20 rows cannot be used"):
        model = fit(rows, ["a", "b", "c"], 3, 8, categorical=["b"], on_error="skip")
    assert model.forest_.n_points == 10
    assert score(rows, model, on_error="skip").where("anomaly_score IS NULL").count() == 10


def test_text_in_place_of_a_number_is_refused(mixed, model):
    renamed = ["country", "paid", "code", "id", "price", "key"]
    swapped = mixed.withColumn("id", F.col("id").cast("string"))
    with pytest.raises(InvalidInputError, match="'id' must be a column of numbers, but its type is string"):
        score(swapped, model, renamed)
    column = pa.StructArray.from_arrays([pa.array(["FR"]), pa.array(["7"])], names=["a", "b"])
    with pytest.raises(InvalidInputError, match="The feature 'b' is a number in the model, but text in the frame"):
        points_of(column, Features(["a", "b"], 2, (0,)))


def test_all_types_have_the_same_codes_and_numbers_as_on_one_machine():
    columns = {
        "text": pa.array(["FR", None, "FR", "é"]),
        "boolean": pa.array([True, False, None, True]),
        "long": pa.array([2**60 + 1, None, 3, 3]),
        "float": pa.array([0.1, 3.0, None, 0.1], pa.float32()),
        "decimal": pa.array([Decimal("2.50"), Decimal("3.00"), None, Decimal("0.10")]),
    }
    struct = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    everything = Features(list(columns), 5, (0, 1, 2, 3, 4))
    codes = points_of(struct.slice(1), everything)
    floats = np.array([0.1, 3.0, np.nan, 0.1], np.float32)
    local = [floats if name == "float" else column.to_pylist() for name, column in columns.items()]
    np.testing.assert_array_equal(codes, np.column_stack([category_codes(column[1:]) for column in local]))
    numbers = points_of(struct, everything._replace(categorical=(0,)))[:, 1:]
    expected = [[1.0, 0.0, np.nan, 1.0], [2.0**60, np.nan, 3.0, 3.0], floats, [2.5, 3.0, np.nan, 0.1]]
    np.testing.assert_array_equal(numbers, np.column_stack(expected))


@pytest.mark.parametrize("missing", ["raise", "median"])
def test_the_first_problem_of_an_unusable_row_is_named(missing):
    features, nan = Features(["a", "b", "c"], 3, (0,)), float("nan")
    points = np.array([[MISSING_CODE, nan, nan], [1.0, nan, np.inf], [1.0, nan, 2.0], [MISSING_CODE, 1.0, 2.0]])
    is_usable = usable_rows(points, features.categorical, missing)
    assert is_usable.tolist() == [False, False, missing == "median", True]
    assert problem_with(points[0], features).startswith("all values of a row are missing")
    assert problem_with(points[1], features).startswith("the feature 'c' of a row is inf")
    assert problem_with(points[2], features).startswith("the feature 'b' of a row is nan")


# -- one model per key ------------------------------------------------------------------------------------------------


def test_every_key_has_the_model_of_its_rows(mixed, points):
    models = fit_by_key(mixed.repartition(4), "key", MIXED, **SETTINGS, missing="indicator", threshold="top 5%").cache()
    scored = score_by_key(mixed.repartition(2), models, "key", MIXED, explain_text=True).orderBy("id").collect()
    for row in models.collect():
        mine, model = points[row.key :: 3], from_bytes(bytes(row.model))
        local = model_on_one_machine(mine, model, medians_of=mine)
        assert to_bytes(model.forest) == to_bytes(local.forest)
        np.testing.assert_array_equal(model.fill, local.fill)
        scores = local.score(mine)
        np.testing.assert_array_equal([each.anomaly_score for each in scored[row.key :: 3]], scores)
        texts = [each.explanation_text for each in scored[row.key :: 3]]
        np.testing.assert_array_equal([text is not None for text in texts], scores > model.threshold)
        assert "country = " in " ".join(filter(None, texts))


# -- a pipeline -------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_saved_and_loaded(mixed, model, tmp_path):
    estimator = IsolationMondrianForest(
        inputCols=MIXED,
        categoricalCols=["code"],
        nTrees=10,
        maxSamples=32,
        seed=5,
        contamination="auto",
        explanationTextCol="why",
    )
    Pipeline(stages=[estimator]).save(str(tmp_path / "pipeline"))
    fitted = Pipeline.load(str(tmp_path / "pipeline")).fit(mixed)
    assert to_bytes(fitted.stages[0]) == to_bytes(model)
    fitted.save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    expected = score(mixed, model, label="prediction", explain_text="why").orderBy("id").collect()
    found = again.transform(mixed).orderBy("id").collect()
    for name in ("anomaly_score", "surprise", "prediction", "why"):
        assert [row[name] for row in found] == [row[name] for row in expected]
