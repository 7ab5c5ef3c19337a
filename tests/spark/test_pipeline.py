"""The forest as a stage of a pipeline, saved and loaded by Spark."""

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import functions as F

import imondrian
from imondrian import DamagedFileError, InvalidInputError
from imondrian.alarms.score_distribution import ScoreDistribution
from imondrian.alarms.thresholds import batch_rule, batch_threshold
from imondrian.base.defaults import PRESETS
from imondrian.model_files import to_bytes
from imondrian.spark import IsolationMondrianForest, IsolationMondrianForestModel, fit
from tests.spark.conftest import FEATURES, scores_of

pytestmark = pytest.mark.spark
BARE = {"kind": "depth", "scale": None, "contamination": "score 0.5"}


@pytest.fixture(scope="module")
def estimator():
    return IsolationMondrianForest(
        nTrees=20, maxSamples=64, seed=5, scale="std", kind="size", contamination=0.05, explanationCol="why"
    )


@pytest.fixture(scope="module")
def pipeline(estimator):
    return Pipeline(stages=[VectorAssembler(inputCols=FEATURES, outputCol="features"), estimator])


@pytest.fixture(scope="module")
def model(pipeline, frame):
    return pipeline.fit(frame)


def test_the_model_has_the_same_forest_as_fit(model, frame):
    assert to_bytes(model.stages[1].forest) == to_bytes(fit(frame, FEATURES, 20, 64, seed=5, scale="std").forest_)


def test_transform_adds_score_prediction_and_explanation(model, frame, points):
    result = model.transform(frame).cache()
    assert result.columns == [*frame.columns, "features", "anomaly_score", "surprise", "prediction", "why"]
    forest, threshold = model.stages[1].forest, model.stages[1].threshold
    expected = forest.score(points, "size")
    np.testing.assert_array_equal(scores_of(result).astype(float), expected)
    np.testing.assert_array_equal(scores_of(result, "prediction").astype(float), (expected > threshold).astype(float))
    assert 0.02 < (expected > threshold).mean() < 0.08
    held = ScoreDistribution.of(*forest.rescore_without_copies("size"))
    np.testing.assert_array_equal(scores_of(result, "surprise").astype(float), held.surprise(expected))
    without = model.stages[1].copy({model.stages[1].surpriseCol: ""})
    assert "surprise" not in without.transform(frame.withColumn("features", F.array(*FEATURES))).columns
    assert sorted(result.first().why) == ["0", "1", "2"]


def test_spark_saves_and_loads_a_model(model, frame, tmp_path):
    model.save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert again.transform(frame).orderBy("id").collect() == model.transform(frame).orderBy("id").collect()
    assert again.stages[1].extractParamMap() == model.stages[1].extractParamMap()
    with pytest.raises(Exception, match="already exists"):
        model.stages[1].save(str(tmp_path / "model"))
    model.stages[1].write().overwrite().save(str(tmp_path / "model"))
    assert IsolationMondrianForestModel.load(str(tmp_path / "model")).threshold == model.stages[1].threshold


def test_spark_saves_and_loads_an_estimator(pipeline, model, frame, tmp_path):
    pipeline.save(str(tmp_path / "pipeline"))
    again = Pipeline.load(str(tmp_path / "pipeline")).fit(frame)
    assert to_bytes(again.stages[1]) == to_bytes(model.stages[1])


def test_the_model_can_be_saved_as_an_ordinary_estimator(frame, points, tmp_path):
    fitted = IsolationMondrianForest(inputCols=FEATURES, nTrees=10, maxSamples=32, **BARE).fit(frame)
    imondrian.save(fitted, tmp_path / "model.imf")
    model = imondrian.load(tmp_path / "model.imf")
    assert list(model.feature_names_in_) == FEATURES
    assert fitted.threshold == -model.offset_ == 0.5
    np.testing.assert_array_equal(-model.forest_.score(points), -scores_of(fitted.transform(frame)).astype(float))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_preset_sets_what_is_not_given(frame, points, preset):
    model = IsolationMondrianForest(inputCols=FEATURES, nTrees=5, maxSamples=32, preset=preset).fit(frame)
    kind, scale, contamination = PRESETS[preset][:3]
    assert model.forest.scale == scale
    assert model.threshold == batch_threshold(batch_rule(contamination), model.forest.rescore(kind)[1])
    np.testing.assert_array_equal(scores_of(model.transform(frame)).astype(float), model.forest.score(points, kind))
    assert IsolationMondrianForest().getOrDefault("preset") == "practice"


def test_stages_saved_by_version_0_1_are_loaded(frame, points, tmp_path):
    estimator = IsolationMondrianForest(inputCols=FEATURES, nTrees=5, maxSamples=32, **BARE)
    estimator.fit(frame).save(str(tmp_path / "model"))
    estimator.save(str(tmp_path / "estimator"))
    for folder in ("model", "estimator"):
        (metadata,) = (tmp_path / folder / "metadata").glob("part-*")
        text = metadata.read_text()
        assert '"nTrees"' in text
        metadata.write_text(text.replace('"nTrees"', '"nEstimators"'))
        for checksum in metadata.parent.glob(".*.crc"):
            checksum.unlink()
    assert IsolationMondrianForest.load(str(tmp_path / "estimator")).getOrDefault("nTrees") == 5
    model = IsolationMondrianForestModel.load(str(tmp_path / "model"))
    assert model.getOrDefault("nTrees") == model.forest.n_trees == 5
    np.testing.assert_array_equal(scores_of(model.transform(frame)).astype(float), model.forest.score(points))


def test_a_copy_may_have_other_parameters(estimator, frame):
    vectors = VectorAssembler(inputCols=FEATURES, outputCol="features").transform(frame)
    model = estimator.fit(vectors, {estimator.nTrees: 3, estimator.scoreCol: "odd", estimator.explanationCol: ""})
    assert model.forest.n_trees == 3
    assert model.transform(vectors).columns[-3:] == ["odd", "surprise", "prediction"]
    assert estimator.getOrDefault("nTrees") == 20


def test_unusable_rows_follow_on_error(frame):
    bad = frame.withColumn("b", F.when(F.col("id") != 77, F.col("b")))
    with pytest.raises(InvalidInputError, match="1 of 3000 rows cannot be used: the feature 'b' of a row is nan"):
        IsolationMondrianForest(inputCols=FEATURES, missing="raise").fit(bad)
    with pytest.warns(UserWarning, match="1 of 3000 rows"):
        model = IsolationMondrianForest(inputCols=FEATURES, nTrees=5, missing="raise", onError="skip").fit(bad)
    nulls = model.transform(bad).where("anomaly_score IS NULL").collect()
    assert [(row.id, row.prediction) for row in nulls] == [(77, None)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kind": "best"}, "best"),
        ({"contamination": 0.9}, "^contamination must be"),
        ({"contamination": "top 60%"}, "^contamination must be .* but is 'top 60%'"),
        ({"preset": "best"}, "preset must be one of practice, paper"),
        ({"inputCols": ["x"]}, "no column 'x'"),
        ({"onError": "?"}, "on_error must be one of"),
    ],
)
def test_invalid_parameters_are_named(frame, parameters, message):
    with pytest.raises(ValueError, match=message):
        IsolationMondrianForest(**{"inputCols": FEATURES, **parameters}).fit(frame)


def test_an_existing_column_is_not_overwritten(frame):
    model = IsolationMondrianForest(inputCols=FEATURES, nTrees=3, predictionCol="name").fit(frame)
    with pytest.raises(InvalidInputError, match="The result column 'name'"):
        model.transform(frame)
    with pytest.raises(InvalidInputError, match="The result column 'KEY'"):
        model.setParams(predictionCol="KEY").transform(frame)
    with pytest.raises(InvalidInputError, match="The result column 'anomaly_score'"):
        model.setParams(predictionCol="anomaly_score").transform(frame)


def test_weights_can_be_saved(frame, tmp_path):
    estimator = IsolationMondrianForest(inputCols=FEATURES, nTrees=3, scale=np.array([1.0, 2.0, 3.0]))
    estimator.fit(frame).save(str(tmp_path / "model"))
    assert IsolationMondrianForestModel.load(str(tmp_path / "model")).forest.scale.tolist() == [1.0, 2.0, 3.0]


def test_a_model_can_use_another_kind_of_score(model, frame, points):
    vectors = model.stages[0].transform(frame)
    other = model.stages[1].transform(vectors, {model.stages[1].kind: "depth"})
    np.testing.assert_array_equal(scores_of(other).astype(float), model.stages[1].forest.score(points, "depth"))


def test_a_damaged_model_is_refused(model, spark, tmp_path):
    model.stages[1].save(str(tmp_path / "model"))
    content = bytearray(to_bytes(model.stages[1]))
    content[len(content) // 2] ^= 1
    rows = spark.createDataFrame([(bytes(content),)], "content binary")
    rows.write.mode("overwrite").parquet(str(tmp_path / "model" / "data"))
    with pytest.raises(DamagedFileError, match="truncated or altered"):
        IsolationMondrianForestModel.load(str(tmp_path / "model"))
