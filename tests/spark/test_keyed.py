"""One model per key."""

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

from imondrian import InvalidInputError, IsolationMondrianForest
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import batch_rule, batch_threshold
from imondrian.base.defaults import PRESETS
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models.distributed import new_sampled_forest
from imondrian.spark import fit_by_key, score_by_key
from tests.spark.conftest import FEATURES, scores_of
from tests.test_distributed import fitted

pytestmark = pytest.mark.spark

BARE = {"kind": "depth", "scale": None, "threshold": 0.5}


@pytest.fixture(scope="module")
def models(frame):
    return fit_by_key(frame, "key", FEATURES, 10, 32, seed=2, **BARE).cache()


def test_every_key_has_the_forest_of_its_rows(models, points):
    rows = models.orderBy("key").collect()
    assert [(row.key, row.n_points) for row in rows] == [(k, len(points[k::7])) for k in range(7)]
    for row in rows:
        model = from_bytes(bytes(row.model))
        assert to_bytes(model.forest) == to_bytes(fitted(new_sampled_forest(10, 32, seed=2), points[row.key :: 7]))
        assert (model.parameters["kind"], model.threshold, model.feature_names) == ("depth", 0.5, FEATURES)


@pytest.mark.parametrize(("preset", "kind", "scale"), [("practice", "size", "std"), ("paper", "depth", None)])
def test_the_preset_sets_missing_settings(frame, points, preset, kind, scale):
    models = fit_by_key(frame, "key", FEATURES, 5, 16, preset=preset).cache()
    scored = score_by_key(frame, models, "key", FEATURES, label="is_anomaly").cache()
    for row in models.collect():
        model = from_bytes(bytes(row.model))
        assert (model.parameters["preset"], model.parameters["kind"], model.forest.scale) == (preset, kind, scale)
        scores = model.forest.score(points[row.key :: 7], kind)
        assert model.threshold == batch_threshold(batch_rule(PRESETS[preset].table_threshold, preset), scores)
        mine = scored.where(F.col("key") == row.key)
        np.testing.assert_array_equal(scores_of(mine).astype(float), scores)
        np.testing.assert_array_equal(scores_of(mine, "is_anomaly").astype(bool), scores > model.threshold)
        surprises = ScoreDistribution.of(scores).surprise(scores)
        np.testing.assert_array_equal(scores_of(mine, "surprise").astype(float), surprises)


@pytest.mark.parametrize("n_partitions", [1, 5])
def test_partitions_do_not_matter(frame, models, n_partitions):
    again = fit_by_key(frame.repartition(n_partitions), "key", FEATURES, 10, 32, seed=2, **BARE)
    assert again.orderBy("key").collect() == models.orderBy("key").collect()


def test_every_row_is_scored_by_the_model_of_its_key(frame, models, points):
    scored = score_by_key(frame, models, "key", FEATURES, label="odd", explain=True, kind="size").cache()
    assert scored.columns == [*frame.columns, "anomaly_score", "surprise", "odd", "explanation"]
    assert scored.orderBy("id").select(*frame.columns).collect() == frame.orderBy("id").collect()
    expected, parts = np.empty(len(points)), np.empty(points.shape)
    for row in models.collect():
        forest = from_bytes(bytes(row.model)).forest
        expected[row.key :: 7] = forest.score(points[row.key :: 7], "size")
        parts[row.key :: 7] = forest.explain(points[row.key :: 7], "size")
    np.testing.assert_array_equal(scores_of(scored).astype(float), expected)
    np.testing.assert_array_equal(scores_of(scored, "odd").astype(bool), expected > 0.5)
    maps = scores_of(scored, "explanation")
    np.testing.assert_array_equal([[each[name] for name in FEATURES] for each in maps], parts)


def test_keys_without_a_model_get_null(frame, models):
    scored = score_by_key(frame, models.where("key < 3"), "key", FEATURES, explain=True, label="odd")
    names = ("anomaly_score", "surprise", "odd", "explanation", "id")
    for key, *counts in scored.groupBy("key").agg(*map(F.count, names)).collect():
        assert counts[:4] == ([counts[4]] * 4 if key < 3 else [0, 0, 0, 0])


def test_a_key_may_have_several_columns_and_be_null(frame):
    keyed = frame.withColumn("side", F.when(F.col("key") < 3, "left").when(F.col("key") < 6, "right"))
    keyed = keyed.withColumn("half", F.col("id") % 2)
    models = fit_by_key(keyed, ["side", "half"], FEATURES, 5, 16)
    assert models.columns == ["side", "half", "n_points", "model"]
    assert models.count() == 6
    sided = score_by_key(keyed, models, ["side", "half"], FEATURES).where("side IS NOT NULL")
    assert sided.count() == 2572
    assert sided.where("anomaly_score IS NULL").count() == 0


def test_times_are_unchanged_in_any_time_zone(spark, frame):
    """These rows cross the end of daylight saving time in the session's zone, Berlin."""
    second = F.timestamp_seconds(F.col("id") + 1_729_989_000)
    timed = frame.withColumns(
        {
            "time": second,
            "hour": F.date_trunc("hour", second),
            "times": F.array(second),
            "record": F.struct(second.alias("at"), F.create_map(F.lit("x"), second).alias("map")),
        }
    )
    models = fit_by_key(timed, "hour", FEATURES, 3, 8)
    scored = score_by_key(timed, models, "hour", FEATURES, output="imondrian_1")
    assert scored.where("imondrian_1 IS NULL").count() == 0
    assert scored.orderBy("id").select(*timed.columns).collect() == timed.orderBy("id").collect()


def test_the_kind_of_score_is_that_of_the_model(spark, frame, points):
    table = pd.DataFrame(points, columns=FEATURES)
    model = IsolationMondrianForest(n_estimators=5, max_samples=32, kind="size", random_state=1).fit(table)
    models = spark.createDataFrame([(key, to_bytes(model)) for key in range(7)], "key int, model binary")
    scored = score_by_key(frame, models, "key", FEATURES)
    np.testing.assert_array_equal(scores_of(scored).astype(float), -model.score_samples(table))


def test_a_thousand_keys_can_be_fitted_and_scored(spark):
    rows = spark.range(20_000).select(
        "id", (F.col("id") % 1000).alias("key"), *(F.randn(seed).alias(name) for seed, name in enumerate(FEATURES))
    )
    models = fit_by_key(rows, "key", FEATURES, 5, 16).cache()
    assert models.count() == 1000
    assert (
        score_by_key(rows, models, "key", FEATURES).where("anomaly_score > 0 AND anomaly_score < 1").count() == 20_000
    )


def test_unusable_rows_follow_on_error(frame):
    bad = frame.withColumn("b", F.when((F.col("key") != 0) & (F.col("id") != 1), F.col("b")))
    with pytest.raises(PythonException, match="InvalidInputError: Invalid input: the feature 'b' of a row is nan"):
        fit_by_key(bad, "key", FEATURES, missing="raise").collect()
    models = fit_by_key(bad, "key", FEATURES, 5, 16, missing="raise", on_error="skip").cache()
    counts = {row.key: (row.n_points, row.model is None) for row in models.collect()}
    assert counts[0] == (0, True)
    assert counts[1] == (428, False)
    scored = score_by_key(bad, models, "key", FEATURES, on_error="skip")
    assert scored.where("anomaly_score IS NULL").count() == 430


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "nowhere"}, "no column 'nowhere'"),
        ({"max_samples": None}, "max_samples must be an integer, but is None"),
        ({"on_error": "?"}, "on_error must be one of"),
    ],
)
def test_invalid_arguments_are_named(frame, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        fit_by_key(frame, **{"key": "key", "features": FEATURES, **arguments})


def test_invalid_frames_are_reported(frame, models):
    with pytest.raises(InvalidInputError, match="no column 'model'"):
        score_by_key(frame, models.drop("model"), "key", FEATURES)
    with pytest.raises(InvalidInputError, match="The result column 'name'"):
        score_by_key(frame, models, "key", FEATURES, output="name")
    with pytest.raises(InvalidInputError, match="The result column 'model'"):
        fit_by_key(frame.withColumnRenamed("key", "Model"), "Model", FEATURES)
    with pytest.raises(
        InvalidInputError, match="The key 'key' must have the same type in both frames, but is int in the fra"
    ):
        score_by_key(frame, models.withColumn("key", F.col("key").cast("long")), "key", FEATURES)
    with pytest.raises(PythonException, match="The model has 3 features, but 2 columns are listed"):
        score_by_key(frame, models, "key", FEATURES[:2]).collect()
    with pytest.raises(PythonException, match=r"The key \w+ has 2 models, but must have at most one"):
        score_by_key(frame, models.union(models), "key", FEATURES).collect()
