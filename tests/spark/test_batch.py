"""One forest for a frame: it does not depend on partitions, and scores are the same as on one machine."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PythonException
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

import imondrian
from imondrian import EmptyForestError, InvalidInputError, IsolationMondrianForest, StreamDetector
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import batch_rule, batch_threshold
from imondrian.model_files import to_bytes
from imondrian.models.distributed import new_sampled_forest
from imondrian.spark import fit, score
from imondrian.spark.arrow_points import problem_with
from imondrian.spark.point_columns import Features
from tests.spark.conftest import FEATURES, scores_of
from tests.test_distributed import fitted

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def forest(frame):
    return fit(frame, FEATURES, n_trees=20, max_samples=64, seed=5, scale=None).forest_


# -- fit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_partitions", [1, 2, 7])
def test_partitions_do_not_matter(frame, forest, n_partitions):
    rows = frame.repartition(n_partitions)
    again = fit(rows, FEATURES, n_trees=20, max_samples=64, seed=5, scale=None).forest_
    assert to_bytes(again) == to_bytes(forest)


@pytest.mark.parametrize("scale", [None, "std", [1.0, 0.5, 2.0]])
def test_the_forest_equals_the_one_built_on_one_machine(frame, points, scale):
    model = fit(frame.repartition(3), FEATURES, 20, 64, seed=5, scale=scale)
    assert to_bytes(model.forest_) == to_bytes(fitted(new_sampled_forest(20, 64, scale, seed=5), points))


@pytest.mark.parametrize(
    ("given", "kind", "scale", "contamination"),
    [
        ({}, "size", "std", "auto"),
        ({"preset": "paper"}, "depth", None, "kmeans"),
        ({"preset": "paper", "threshold": "auto"}, "depth", None, "auto"),
        ({"threshold": 0.01}, "size", "std", "surprise 2"),
        ({"threshold": "top 5%"}, "size", "std", "top 5%"),
        ({"kind": "expected", "scale": None, "threshold": 0.5}, "expected", None, "score 0.5"),
    ],
)
def test_the_preset_sets_missing_settings(frame, points, given, kind, scale, contamination):
    model = fit(frame, FEATURES, 10, 32, seed=5, **given)
    assert isinstance(model, IsolationMondrianForest)
    parameters = model.get_params()
    assert (parameters["kind"], parameters["contamination"], model.forest_.scale) == (kind, contamination, scale)
    assert parameters["preset"] == given.get("preset", "practice")
    scores = model.forest_.score(points, kind)
    threshold = -model.offset_
    held = model.forest_.rescore(kind)[1]
    assert threshold == pytest.approx(
        batch_threshold(batch_rule(contamination, parameters["preset"]), held), rel=1e-9, abs=0.0
    )
    scored = score(frame, model, label="is_anomaly").cache()  # with the feature names of the model
    np.testing.assert_array_equal(scores_of(scored).astype(float), scores)
    np.testing.assert_array_equal(scores_of(scored, "is_anomaly").astype(bool), scores > threshold)
    surprises = scores_of(scored, "surprise").astype(float)
    np.testing.assert_array_equal(surprises, model.surprise_samples(points_with_names(points)))
    np.testing.assert_allclose(surprises, ScoreDistribution.of(held).surprise(scores), rtol=1e-6)
    assert score(frame, model, surprise=None).columns == [*frame.columns, "anomaly_score"]
    assert score(frame, model, surprise="how rare").columns == [*frame.columns, "anomaly_score", "how rare"]


def points_with_names(points):
    return pytest.importorskip("pandas").DataFrame(points, columns=FEATURES)


def test_the_result_is_an_ordinary_forest(forest, points, tmp_path):
    imondrian.save(forest, tmp_path / "forest.imf")
    again = imondrian.load(tmp_path / "forest.imf")
    assert again.n_points == 3000
    np.testing.assert_array_equal(again.score(points), forest.score(points))
    assert again.score([[9.0, 9.0, 9.0]])[0] > 0.6 > again.score([[0.0, 0.0, 0.0]])[0]
    assert again.extend(points).n_points == 6000


def test_copies_do_not_distort_the_samples(forest):
    """A tenth of the rows are equal: of 20 x 64 rows drawn, 128 on average, with standard deviation 10.6."""
    n_copies = 0
    for tree in forest.trees():
        is_copy = (tree.split_feature == -1) & (tree.lower == [0.25, -1.5, 0.0]).all(axis=1)
        n_copies += tree.population[is_copy].sum()
    assert 128 - 53 < n_copies < 128 + 53


def test_minus_zero_is_a_copy_of_zero(spark):
    columns = spark.createDataFrame([(0.0, 1.0), (-0.0, 1.0), (2.0, -0.0)], "a double, b double")
    arrays = columns.select(F.array("a", "b").alias("p"))
    for model in (fit(columns, ["a", "b"], 3, 8), fit(arrays, "p", 3, 8)):
        assert all(sorted(tree.population) == [1, 2, 3] for tree in model.forest_.trees())


def test_arrays_and_vectors_give_the_same_forest_as_columns(frame, forest):
    arrays = frame.select(F.array(*FEATURES).cast("array<float>").alias("point"))
    floats = frame.select(*(F.col(name).cast("float") for name in FEATURES))
    assert to_bytes(fit(arrays, "point", 20, 64).forest_) == to_bytes(fit(floats, FEATURES, 20, 64).forest_)
    vectors = VectorAssembler(inputCols=FEATURES, outputCol="vector").transform(frame)
    assert to_bytes(fit(vectors, "vector", 20, 64, seed=5, scale=None).forest_) == to_bytes(forest)


def test_all_numeric_types_are_accepted(spark):
    rows = spark.range(50).selectExpr("id AS a", "decimal(id) AS b", "id % 2 = 0 AS c", "float(id) AS d")
    forest = fit(rows, ["a", "b", "c", "d"], 5, 16).forest_
    assert forest.n_features == 4
    assert forest.n_points == 50


BAD = {"NaN": float("nan"), "infinity": float("inf"), "null": None, "too large": 1e200}


@pytest.fixture(params=BAD)
def bad_frame(request, spark, frame):
    kind = StructType([StructField(name, DoubleType()) for name in FEATURES])
    return frame.select(*FEATURES).union(spark.createDataFrame([(1.0, BAD[request.param], 0.0)] * 2, kind))


def test_unusable_rows_are_reported(bad_frame):
    with pytest.raises(InvalidInputError, match=r"2 of 3002 rows cannot be used: the feature 'b' of a row is"):
        fit(bad_frame, FEATURES, 5, 16, missing="raise")


def test_unusable_rows_are_skipped_on_request(bad_frame, points):
    with pytest.warns(UserWarning, match=r"2 of 3002 rows cannot be used.*They are skipped"):
        forest = fit(bad_frame, FEATURES, 5, 16, scale=None, missing="raise", on_error="skip").forest_
    assert to_bytes(forest) == to_bytes(fitted(new_sampled_forest(5, 16), points))


def test_arrays_of_another_length_are_unusable_rows(spark):
    rows = spark.createDataFrame([([1.0, 2.0],), ([3.0, 4.0],), ([1.0],), (None,)], "p array<double>")
    with pytest.raises(InvalidInputError, match=r"2 of 4 .* all values of a row are missing, or it does not have 2"):
        fit(rows, "p", 5, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": ["a", "x"]}, r"no column 'x': its columns are \['id'"),
        ({"features": ["a", "a"]}, "'a' is listed twice"),
        ({"features": ["a", "day"]}, "'day' must be a column of numbers, text or booleans, but its type is date"),
        ({"categorical": ["x"]}, "categorical lists the feature 'x', but no feature has this name"),
        ({"missing": "previous"}, "missing must be one of raise, median, indicator, but is 'previous'"),
        ({"features": []}, "At least one column"),
        ({"max_samples": None}, "max_samples must be an integer, but is None"),
        ({"max_samples": 0}, "max_samples must be between 1"),
        ({"n_trees": -1}, "n_trees must be between 1"),
        ({"scale": "max"}, "scale must be None, 'std'"),
        ({"preset": "best"}, "preset must be one of practice, paper"),
        (
            {"preset": "best", "kind": "depth", "scale": None, "threshold": "auto"},
            "preset must be one of practice, paper",
        ),
        ({"kind": "best"}, "kind must be one of depth, expected, size"),
        ({"threshold": 0.9}, "threshold must be 'auto', a probability below 0.5.* but is 0.9"),
        ({"threshold": "top 60%"}, "threshold must be 'auto', a probability below 0.5.* but is 'top 60%'"),
        ({"scale": [1.0]}, "scale must have one weight for each of 3 features"),
        ({"on_error": "ignore"}, "on_error must be one of 'raise', 'skip', but is 'ignore'"),
    ],
)
def test_invalid_arguments_are_named(frame, arguments, message):
    dated = frame.withColumn("day", F.current_date())
    with pytest.raises(InvalidInputError, match=message):
        fit(dated, **{"features": FEATURES, **arguments})


def test_an_empty_frame_is_an_error(frame):
    with pytest.raises(InvalidInputError, match="no usable rows"):
        fit(frame.where("id < 0"), FEATURES)
    with pytest.raises(InvalidInputError, match="no usable rows"):
        fit(frame.where("id < 0").select(F.array(*FEATURES).alias("p")), "p")


def test_a_frame_without_usable_rows_is_an_error(frame):
    bad = frame.withColumn("b", F.lit(float("nan")))
    with pytest.raises(InvalidInputError, match="3000 of 3000 rows cannot be used: the feature 'b' of a row is nan"):
        fit(bad, FEATURES, missing="raise")
    with pytest.warns(UserWarning, match="3000 of 3000"), pytest.raises(InvalidInputError, match="no usable rows"):
        fit(bad, FEATURES, missing="raise", on_error="skip")


def test_the_number_of_features_is_the_most_frequent_array_length(spark):
    rows = [([1.0],), ([1.0, 2.0],), ([3.0, 4.0],), ([5.0, 6.0, 7.0],)]
    for some in (rows, rows[::-1]):
        with pytest.warns(UserWarning, match="2 of 4 rows"):
            model = fit(spark.createDataFrame(some, "p array<double>"), "p", 3, 8, on_error="skip")
        assert model.forest_.n_features == model.n_features_in_ == 2


# -- score ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["depth", "expected", "size"])
def test_scores_are_the_same_as_on_one_machine(frame, forest, points, kind):
    scored = score(frame.repartition(4), forest, FEATURES, kind=kind)
    np.testing.assert_array_equal(scores_of(scored).astype(float), forest.score(points, kind))


def test_other_columns_are_unchanged(spark, frame, forest):
    wide = frame.withColumns(
        {
            "big": F.when(F.col("id") % 2 == 0, F.lit(2**62 + 1)),
            "when": F.timestamp_seconds(F.col("id")),
            "tags": F.create_map(F.lit("k"), F.col("id")),
            "odd name. with `ticks`": F.lit(1),
            "months": F.expr("interval 3 months"),
        }
    )
    scored = score(wide, forest, FEATURES, output="how odd")
    assert scored.columns == [*wide.columns, "how odd", "surprise"]
    assert scored.drop("how odd", "surprise").schema == wide.schema
    kept = [f"`{name.replace('`', '``')}`" for name in wide.columns if name != "months"]  # Python has no type for it
    assert scored.orderBy("id").select(*kept).collect() == wide.orderBy("id").select(*kept).collect()


def test_scoring_is_lazy(spark, frame, forest):
    poisoned = frame.withColumn("a", F.raise_error(F.lit("too early")).cast("double"))
    scored = score(poisoned, forest, FEATURES, explain=True)
    assert "anomaly_score" in scored.columns
    with pytest.raises(Exception, match="too early"):
        scored.select("anomaly_score").collect()


def test_explanations_sum_to_the_scores(frame, forest, points):
    rows = score(frame, forest, FEATURES, explain=True).where("id < 100").orderBy("id").collect()
    parts = np.array([[row.explanation[name] for name in FEATURES] for row in rows])
    np.testing.assert_array_equal(parts, forest.explain(points[:100]))
    np.testing.assert_allclose(np.abs(parts).sum(axis=1), [row.anomaly_score for row in rows])
    assert "why" in score(frame, forest, FEATURES, explain="why").columns


def test_an_estimator_provides_feature_names_score_and_threshold(frame, points):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(points, columns=FEATURES)
    model = IsolationMondrianForest(
        n_estimators=10, max_samples=64, kind="size", contamination=0.05, random_state=1
    ).fit(table)
    scored = score(frame, model, label="odd").cache()
    np.testing.assert_array_equal(scores_of(scored).astype(float), -model.score_samples(table))
    np.testing.assert_array_equal(scores_of(scored, "odd").astype(bool), model.predict(table) == -1)
    np.testing.assert_array_equal(scores_of(scored, "surprise").astype(float), model.surprise_samples(table))


def test_a_stream_detector_can_score(frame, points):
    detector = StreamDetector(3, window=128, max_samples=32, n_trees=10)
    detector.process_many(points)
    scored = score(frame, detector, FEATURES, label="odd")
    scores = detector.forest.score(points, "size")
    np.testing.assert_array_equal(scores_of(scored).astype(float), scores)
    np.testing.assert_array_equal(scores_of(scored, "odd").astype(bool), scores > detector.threshold_score)
    surprises = scores_of(scored, "surprise").astype(float)
    np.testing.assert_array_equal(surprises, detector.score_distribution.surprise(scores))


def test_a_model_without_points_is_refused(frame):
    with pytest.raises(EmptyForestError, match="has not learned any points"):
        score(frame, StreamDetector(3), FEATURES)


def test_no_column_name_is_reserved(frame, forest):
    scored = score(frame.withColumn("imondrian_result", F.lit(1)), forest, FEATURES)
    assert scored.where("imondrian_result = 1 AND anomaly_score IS NOT NULL").count() == 3000


def test_all_results_are_computed_in_one_pass(frame, forest, capsys):
    score(frame, forest, FEATURES, explain=True, label="odd").explain()
    assert capsys.readouterr().out.count("ArrowEvalPython") == 1


def test_an_unusable_row_fails(frame, forest):
    bad = frame.withColumn("b", F.when(F.col("id") != 77, F.col("b")))
    with pytest.raises(PythonException, match="InvalidInputError: Invalid input: the feature 'b' of a row is nan"):
        score(bad, forest, FEATURES).collect()


def test_a_value_too_far_below_zero_is_reported_with_the_limit():
    problem = problem_with(np.array([1.0, -1e200]), Features(["a", "b"], 2))
    assert problem == "the feature 'b' of a row is -1e+200; values must be finite and at most 1e+153 in absolute value"


def test_an_unusable_row_gets_null_on_request(bad_frame, forest):
    scored = score(bad_frame, forest, FEATURES, explain=True, label="odd", on_error="skip")
    bad = scored.where("anomaly_score IS NULL").collect()
    assert [(row.anomaly_score, row.surprise, row.odd, row.explanation) for row in bad] == [(None,) * 4] * 2
    assert scored.where("odd IS NOT NULL AND explanation IS NOT NULL").count() == 3000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": None}, "features must be given, because the model has no feature names"),
        ({"features": ["a"]}, "The model has 3 features, but 1 columns are listed"),
        ({"output": "NAME"}, "The result column 'NAME' has the name of another"),
        ({"output": "s", "label": "S"}, "The result column 'S' has the name of another"),
        ({"label": "ANOMALY_SCORE"}, "The result column 'ANOMALY_SCORE' has the name of another"),
        ({"kind": "best"}, "best"),
        ({"on_error": 3}, "on_error must be one of"),
        ({"model": "forest"}, "can be saved, not 'forest'"),
    ],
)
def test_invalid_arguments_of_score_are_named(frame, forest, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        score(frame, **{"model": forest, "features": FEATURES, **arguments})


# -- a worker dies ----------------------------------------------------------------------------------------------


def parent_of(process):
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def python_workers():
    """List the Python workers of this session: children of its daemon, which is a child of its Java process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            daemon = parent_of(folder.name)
            is_daemon = b"pyspark.daemon" in Path(f"/proc/{daemon}/cmdline").read_bytes()
            if is_daemon and parent_of(parent_of(daemon)) == os.getpid():
                found.append(int(folder.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def kill_workers_of(scoring_thread, tracker):
    """Kill every worker once while a task is running; return the stage."""
    deadline = time.monotonic() + 60
    while scoring_thread.is_alive() and time.monotonic() < deadline:
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and info.numActiveTasks > 0:
                time.sleep(0.3)  # wait until they have started
                for process in python_workers():
                    os.kill(process, signal.SIGKILL)
                return stage
        time.sleep(0.01)
    return None


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="workers are found in /proc")
def test_a_killed_worker_does_not_change_the_scores(spark, forest):
    columns = [F.randn(seed).alias(name) for seed, name in enumerate(FEATURES)]
    rows = spark.range(400_000, numPartitions=4).select("id", *columns)
    X = np.array(rows.orderBy("id").select(*FEATURES).toPandas())
    scored = score(rows, forest, FEATURES, kind="size").select("id", "anomaly_score")
    result, tracker = {}, spark.sparkContext.statusTracker()
    scoring_thread = threading.Thread(target=lambda: result.update(table=scored.toPandas()))
    scoring_thread.start()
    stage = kill_workers_of(scoring_thread, tracker)
    scoring_thread.join(120)
    assert not scoring_thread.is_alive()
    assert tracker.getStageInfo(stage).numFailedTasks > 0
    np.testing.assert_array_equal(result["table"].sort_values("id")["anomaly_score"], forest.score(X, "size"))
