"""The forest as a stage of a Spark pipeline: an Estimator and its Model, saved and loaded by Spark."""

from typing import Any, Self

from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasInputCols, HasPredictionCol, HasSeed
from pyspark.ml.util import (
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import DataFrame

from imondrian.base.column_names import SCORE, SURPRISE
from imondrian.base.defaults import FROM_PRESET, MAX_SAMPLES, MISSING_VALUES, N_TREES, PRESET, SEED, resolved
from imondrian.base.errors import DamagedFileError
from imondrian.base.option_types import KindOrPreset, Missing, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.model_files import from_bytes, to_bytes
from imondrian.models.fitted_model import FittedModel
from imondrian.spark.fit_settings import FitSettings
from imondrian.spark.fitting import fit_with_settings
from imondrian.spark.point_columns import column_named
from imondrian.spark.scoring import score

_DATA = "data"


def _saveable(scale: Any) -> Any:
    """Convert weights to a list of numbers, which Spark can save; return None and names unchanged."""
    return scale if scale is None or isinstance(scale, str) else TypeConverters.toListFloat(scale)


class _Parameters(HasFeaturesCol, HasInputCols, HasPredictionCol, HasSeed):
    """The parameters of both Estimator and Model."""

    nTrees = Param(Params._dummy(), "nTrees", "number of trees", TypeConverters.toInt)  # noqa: N815, SLF001
    maxSamples = Param(Params._dummy(), "maxSamples", "maximum number of rows in each tree", TypeConverters.toInt)  # noqa: N815, SLF001
    preset = Param(Params._dummy(), "preset", "practice or paper", TypeConverters.toString)  # noqa: SLF001
    kind = Param(Params._dummy(), "kind", "which score: preset, depth, expected or size", TypeConverters.toString)  # noqa: SLF001
    scale: Param[Any] = Param(Params._dummy(), "scale", "'preset', None, 'std' or one weight per feature", _saveable)  # noqa: SLF001
    contamination: Param[Any] = Param(  # as in scikit-learn; `threshold` is the resulting score
        Params._dummy(),  # noqa: SLF001
        "contamination",
        "'preset', 'auto', 'kmeans', a share up to 0.5, or a string such as 'surprise 3'",
    )
    categoricalCols: Param[list[Any]] = Param(  # noqa: N815
        Params._dummy(),  # noqa: SLF001
        "categoricalCols",
        "columns of numbers that are categories, or their indices in featuresCol",
        TypeConverters.toList,
    )
    missing = Param(Params._dummy(), "missing", "missing numbers: median, indicator or raise", TypeConverters.toString)  # noqa: SLF001
    onError = Param(Params._dummy(), "onError", "unusable rows: raise or skip", TypeConverters.toString)  # noqa: N815, SLF001
    scoreCol = Param(Params._dummy(), "scoreCol", "column of scores", TypeConverters.toString)  # noqa: N815, SLF001
    surpriseCol = Param(Params._dummy(), "surpriseCol", "column of surprises; empty for none", TypeConverters.toString)  # noqa: N815, SLF001
    explanationCol = Param(  # noqa: N815
        Params._dummy(),  # noqa: SLF001
        "explanationCol",
        "column of explanations; empty for none",
        TypeConverters.toString,
    )
    explanationTextCol = Param(  # noqa: N815
        Params._dummy(),  # noqa: SLF001
        "explanationTextCol",
        "column of explanations of anomalies in words; empty for none",
        TypeConverters.toString,
    )

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(
            featuresCol="features",
            predictionCol="prediction",
            seed=SEED,
            nTrees=N_TREES,
            maxSamples=MAX_SAMPLES,
            preset=PRESET,
            kind=FROM_PRESET,
            scale=FROM_PRESET,
            contamination=FROM_PRESET,
            categoricalCols=[],
            missing=MISSING_VALUES,
            onError="raise",
            scoreCol=SCORE,
            surpriseCol=SURPRISE,
            explanationCol="",
            explanationTextCol="",
        )

    def setParams(self, **values: Any) -> Self:  # noqa: N802
        """Set any of the parameters."""
        return self._set(**values)

    def _features(self) -> str | list[str]:
        return self.getInputCols() if self.isSet(self.inputCols) else self.getFeaturesCol()

    def _value(self, name: str) -> Any:
        return self.getOrDefault(self.getParam(name))


class IsolationMondrianForest(
    Estimator["IsolationMondrianForestModel"], _Parameters, MLReadable["IsolationMondrianForest"], DefaultParamsWritable
):
    """The isolation Mondrian forest as a Spark Estimator: `fit` returns an IsolationMondrianForestModel.

    Parameters
    ----------
    featuresCol : str, default="features"
        A column of vectors or arrays.
    inputCols : list of str, optional
        Columns of numbers, text and booleans to use as the features instead. Text and booleans are categories.
    scoreCol, predictionCol : str, default="anomaly_score" and "prediction"
        Columns that the model adds: the score, in (0, 1), higher is more anomalous; and 1.0 for an anomaly, else 0.0.
    surpriseCol : str, default="surprise"
        If not empty, the name of another column that the model adds: the surprise, as in `imondrian.spark.score`.
    explanationCol : str, default=""
        If not empty, the name of another column that the model adds: a map from each feature to its part of the score.
    explanationTextCol : str, default=""
        If not empty, the name of another column that the model adds: the explanations of anomalies in words.
    nTrees, maxSamples, seed, preset, kind, scale, missing
        As in `imondrian.spark.fit`.
    categoricalCols : list of str or int, optional
        Columns of numbers in inputCols that are categories, or their indices in the vectors of featuresCol.
    contamination : "preset", "auto", "kmeans", float, or a string such as "surprise 3", default="preset"
        Which rows are anomalies, as in `imondrian.IsolationMondrianForest`: a number is a share of the rows.
    onError : "raise" or "skip", default="raise"
        How to handle a row that cannot be used: fail, or skip it and set its score to null.
    """

    @keyword_only
    def __init__(  # noqa: PLR0913
        self,
        *,
        featuresCol: str = "features",
        inputCols: list[str] | None = None,
        scoreCol: str = SCORE,
        surpriseCol: str = SURPRISE,
        predictionCol: str = "prediction",
        explanationCol: str = "",
        explanationTextCol: str = "",
        nTrees: int = N_TREES,
        maxSamples: int = MAX_SAMPLES,
        preset: PresetName = PRESET,
        kind: KindOrPreset = "preset",
        scale: ScaleOrPreset = "preset",
        contamination: ThresholdOrPreset = "preset",
        categoricalCols: list[Any] | None = None,
        missing: Missing = MISSING_VALUES,
        onError: OnError = "raise",
        seed: int = SEED,
    ) -> None:
        super().__init__()
        arguments = vars(self)["_input_kwargs"]
        self._set(**{name: value for name, value in arguments.items() if value is not None or name == "scale"})

    @classmethod
    def read(cls) -> "MLReader[IsolationMondrianForest]":
        """Return a reader; `load(path)` is short for `read().load(path)`."""
        return _EstimatorReader()

    def _fit(self, dataset: DataFrame) -> "IsolationMondrianForestModel":
        settings = FitSettings.checked(*map(self._value, ("preset", "kind", "scale", "contamination", "missing")))
        fitted = fit_with_settings(
            dataset,
            self._features(),
            (self._value("nTrees"), self._value("maxSamples"), self.getSeed()),
            settings,
            self._value("categoricalCols"),
            self._value("onError"),
        )
        return self._copyValues(IsolationMondrianForestModel(fitted))


class IsolationMondrianForestModel(Model, _Parameters, MLReadable["IsolationMondrianForestModel"], MLWritable):
    """A fitted forest as a Spark Model: `transform` adds scores and predictions.

    Attributes
    ----------
    forest : MondrianForest
        The forest itself.
    threshold : float
        The score above which a row is an anomaly.
    """

    def __init__(self, fitted: FittedModel) -> None:
        super().__init__()
        self._fitted = fitted

    @property
    def forest(self) -> Any:
        """The forest itself."""
        return self._fitted.forest

    @property
    def threshold(self) -> float:
        """The score above which a row is an anomaly."""
        return float(self._fitted.threshold)

    def fitted_model(self) -> FittedModel:
        """Return the fitted model; `imondrian.save(model, path)` writes it to a file like a scikit-learn estimator."""
        return self._fitted

    def _transform(self, dataset: DataFrame) -> DataFrame:
        prediction = self.getPredictionCol()
        scored = score(
            dataset,
            self._fitted,
            self._features(),
            self._value("scoreCol"),
            self._value("explanationCol") or False,
            label=prediction,
            surprise=self._value("surpriseCol") or None,
            kind=resolved(self._value("kind"), "kind", self._value("preset")),
            explain_text=self._value("explanationTextCol") or False,
            on_error=self._value("onError"),
        )
        return scored.withColumn(prediction, column_named(prediction).cast("double"))

    def write(self) -> MLWriter:
        """Return a writer; `model.save(path)` is short for `model.write().save(path)`."""
        return _Writer(self)

    @classmethod
    def read(cls) -> "MLReader[IsolationMondrianForestModel]":
        """Return a reader; `load(path)` is short for `read().load(path)`."""
        return _Reader()


def _with_current_names(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the saved metadata of a stage with its parameters under their current names."""
    for parameters in (metadata["paramMap"], metadata["defaultParamMap"]):
        if "nEstimators" in parameters:  # an earlier version
            parameters["nTrees"] = parameters.pop("nEstimators")
    return metadata


class _EstimatorReader(MLReader[IsolationMondrianForest]):
    def load(self, path: str) -> IsolationMondrianForest:
        """Read the parameters written by Spark's own writer."""
        metadata = _with_current_names(DefaultParamsReader.loadMetadata(path, self.sparkSession))
        estimator = IsolationMondrianForest()
        estimator._resetUid(metadata["uid"])  # noqa: SLF001
        DefaultParamsReader.getAndSetParams(estimator, metadata)
        return estimator


class _Writer(MLWriter):
    def __init__(self, model: IsolationMondrianForestModel) -> None:
        super().__init__()
        self._model = model

    def saveImpl(self, path: str) -> None:  # noqa: N802
        """Write the parameters as Spark does, and the model file as a table with one row."""
        DefaultParamsWriter.saveMetadata(self._model, path, self.sparkSession)
        rows = self.sparkSession.createDataFrame([(to_bytes(self._model),)], "content binary")
        rows.coalesce(1).write.parquet(f"{path}/{_DATA}")


class _Reader(MLReader[IsolationMondrianForestModel]):
    def load(self, path: str) -> IsolationMondrianForestModel:
        """Read a saved model; the model file is checked like any other."""
        metadata = _with_current_names(DefaultParamsReader.loadMetadata(path, self.sparkSession))
        row = self.sparkSession.read.parquet(f"{path}/{_DATA}").first()
        fitted = None if row is None else from_bytes(bytes(row.content), path)
        if not isinstance(fitted, FittedModel):
            raise DamagedFileError(f"{path} does not contain the model of an IsolationMondrianForest.")
        model = IsolationMondrianForestModel(fitted)
        model._resetUid(metadata["uid"])  # noqa: SLF001
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model
