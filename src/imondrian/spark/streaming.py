"""A detector per key on an endless stream: Structured Streaming keeps its state, and brings it back after a crash."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from imondrian.defaults import KEYED_MAX_SAMPLES, KEYED_N_TREES, KEYED_WINDOW, PRESET
from imondrian.errors import InvalidInputError
from imondrian.option_types import ON_ERROR, KindOrPreset, OnError, PresetName, ScaleOrPreset, ThresholdOrPreset
from imondrian.spark.column_transfer import from_pandas, pandas_columns, pandas_fields, transfer_name
from imondrian.spark.detector_cache import DetectorCache
from imondrian.spark.feature_columns import (
    LABEL,
    POINT,
    SCORE,
    Features,
    check_choice,
    check_free,
    check_usable,
    checked_names,
    column_named,
    features_of,
    points_of,
    quoted,
    usable_rows,
)
from imondrian.stream import Results, StreamDetector

THRESHOLD = "threshold"
_TIME, _WORD, _EVENT = "imondrian_time", "imondrian_word", "imondrian_event"
_BEFORE_ALL = -(2**63)
_RESULTS = [StructField(SCORE, DoubleType()), StructField(THRESHOLD, DoubleType()), StructField(LABEL, BooleanType())]
_detectors = DetectorCache()
Wait = Callable[[GroupState, Any], None]
Process = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def watch(  # noqa: PLR0913
    stream: DataFrame,
    key: str | Sequence[str],
    features: str | Sequence[str],
    window: int = KEYED_WINDOW,
    max_samples: int | None = KEYED_MAX_SAMPLES,
    *,
    n_trees: int = KEYED_N_TREES,
    threshold: ThresholdOrPreset = "preset",
    preset: PresetName = PRESET,
    kind: KindOrPreset = "preset",
    scale: ScaleOrPreset = "preset",
    n_features: int | None = None,
    time: str | None = None,
    lateness: str | None = None,
    identity: str | Sequence[str] | None = None,
    idle: timedelta | None = None,
    on_error: OnError = "raise",
    **options: Any,
) -> DataFrame:
    """Score the rows of a stream by a detector per key, which then learns them.

    The detectors are `StreamDetector`, and live in Spark's state store: they come back from the checkpoint after a
    crash, and go on to the last bit. Rows that come in one micro-batch have no order of their own: those of a key are
    taken by `time`, and where that is the same, or none is given, in an order that hangs on what is in them alone.

    Parameters
    ----------
    stream : DataFrame
        A streaming frame.
    key : str or list of str
        One column or several; rows that agree in them have a detector of their own.
    features : list of str, or str
        Columns of numbers, or one column of arrays or vectors.
    window, max_samples, n_trees : int, default=256, 64, 25
        As of `StreamDetector`, with smaller defaults, since there are as many as there are keys.
    threshold, preset, kind, scale
        As of `StreamDetector`.
    n_features : int, optional
        How many there are; needed where one column holds them, since no row can be asked beforehand.
    time : str, optional
        A column of timestamps, by which the rows of a micro-batch are ordered.
    lateness : str, optional
        How much later than others a row may come ("10 minutes"): it sets Spark's watermark on `time`, and rows behind
        it are dropped, as Spark defines.
    identity : str or list of str, optional
        Columns that tell rows apart: of rows that agree in them only one counts. With `lateness` Spark remembers them
        as long as the watermark asks for, else for ever.
    idle : timedelta, optional
        For how long a detector is kept that sees no rows: by the watermark if there is one, else by the clock. By
        default for ever.
    on_error : "raise" or "skip", default="raise"
        What to do about a row with a value that is missing or not finite: let the query fail (and fail again whenever
        it is restarted, until it is told to skip), or leave its score null.
    **options
        Others of `StreamDetector`: seed, warm_up, learn_anomalies, shingle. These, and the sizes, are those with which
        a key's detector was made, also if the query is restarted with others.

    Returns
    -------
    DataFrame
        A streaming frame with all columns, and `anomaly_score`, `threshold` and `is_anomaly`. Write it with the output
        mode "append": every row comes out once and never changes.
    """
    keys = checked_names(stream, key)
    column, found = features_of(stream, features)
    check_free(stream, [field.name for field in _RESULTS])
    check_choice(on_error, "on_error", ON_ERROR)
    found = _with_width(found, n_features)
    parameters = options | {
        "n_features": found.n_features,
        "window": window,
        "max_samples": max_samples,
        "n_trees": n_trees,
        "threshold": threshold,
        "preset": preset,
        "kind": kind,
        "scale": scale,
        "on_error": "skip",  # bad rows are looked at before
    }
    StreamDetector(**parameters)  # for its checks
    rows = _timely(stream, time, lateness, identity)
    timeout, wait = _patience(idle, lateness)
    beside = [column.alias(POINT), _time(time).alias(_TIME), _word(rows).alias(_WORD)]
    if lateness is not None:
        beside.append(column_named(str(time)).alias(_EVENT))  # as it is, for it carries Spark's watermark
    groups = rows.select(*pandas_columns(rows.schema), *beside).groupBy(
        *(transfer_name(rows.schema, name) for name in keys)
    )
    schema = StructType([*pandas_fields(rows.schema), *_RESULTS])
    process = _processing(found, parameters, on_error, wait)
    results = groups.applyInPandasWithState(process, schema, "model binary", "append", timeout)
    return results.select(*from_pandas(rows.schema), *(field.name for field in _RESULTS))


def _with_width(features: Features, n_features: int | None) -> Features:
    """Make sure that the number of features is known."""
    if features.n_features is None and n_features is None:
        raise InvalidInputError("n_features must be given where one column holds the features.")
    if features.n_features is not None and n_features not in (None, features.n_features):
        raise InvalidInputError(f"n_features is {n_features}, but {features.n_features} features are named.")
    return features._replace(n_features=features.n_features or n_features)


def _timely(
    stream: DataFrame, time: str | None, lateness: str | None, identity: str | Sequence[str] | None
) -> DataFrame:
    """Let Spark drop late and repeated rows."""
    if time is not None:
        kind = stream.schema[checked_names(stream, time)[0]].dataType
        if not isinstance(kind, TimestampType):
            raise InvalidInputError(f"The column {time!r} must hold timestamps, but its type is {kind.simpleString()}.")
    if lateness is not None:
        if time is None:
            raise InvalidInputError(f"lateness is {lateness!r}, but no column of times is given.")
        stream = stream.withWatermark(quoted(time), lateness)
    if identity is None:
        return stream
    names = checked_names(stream, identity)
    return stream.dropDuplicates(names) if lateness is None else stream.dropDuplicatesWithinWatermark(names)


def _time(time: str | None) -> Column:
    """Give the time of a row in microseconds; rows without one come first."""
    return F.lit(0).cast("long") if time is None else F.coalesce(F.unix_micros(column_named(time)), F.lit(_BEFORE_ALL))


def _word(rows: DataFrame) -> Column:
    """Scramble all that is in a row into 64 bits."""
    columns = [column_named(field.name) for field in rows.schema.fields if _has_hash(field.dataType)]
    return F.xxhash64(*columns, *(column.isNull() for column in columns))  # nulls alone would leave no trace


def _has_hash(kind: DataType) -> bool:
    """Tell whether Spark can scramble values of a type."""
    if isinstance(kind, StructType):
        return all(_has_hash(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_hash(kind.elementType)
    return not isinstance(kind, (MapType, VariantType))


def _patience(idle: timedelta | None, lateness: str | None) -> tuple[str, Wait]:
    """Tell by which clock detectors grow old (that of events drops late rows, too), and how that is set for one."""
    if idle is not None and (not isinstance(idle, timedelta) or idle <= timedelta()):
        raise InvalidInputError(f"idle must be a timedelta above 0, but is {idle!r}.")
    by_events = lateness is not None
    if idle is None:
        return GroupStateTimeout.EventTimeTimeout if by_events else GroupStateTimeout.NoTimeout, _for_ever
    patience = max(idle // timedelta(milliseconds=1), 1)
    if by_events:
        return GroupStateTimeout.EventTimeTimeout, partial(_by_watermark, patience)
    return GroupStateTimeout.ProcessingTimeTimeout, partial(_by_clock, patience)


def _for_ever(state: GroupState, times: Any) -> None:
    """Keep the detector whatever comes."""


def _by_clock(patience: int, state: GroupState, times: Any) -> None:  # noqa: ARG001
    """Let the detector go so many milliseconds from now, unless there are rows before."""
    state.setTimeoutDuration(patience)


def _by_watermark(patience: int, state: GroupState, times: Any) -> None:
    """Let the detector go when the watermark is so many milliseconds after its last row."""
    latest = int(times.max()) // 1000
    state.setTimeoutTimestamp(max(latest, state.getCurrentWatermarkMs()) + patience)


def _processing(features: Features, parameters: dict[str, Any], on_error: str, wait: Wait) -> Process:
    """Make the function that shows the rows of one key in a micro-batch to its detector."""

    def process(_key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        warnings.filterwarnings(
            "ignore", "The behavior of DataFrame concatenation", FutureWarning
        )  # Spark's own, per key
        if state.hasTimedOut:
            state.remove()
            return
        rows = pd.concat(frames).sort_values([_TIME, _WORD], kind="stable", ignore_index=True)
        points = points_of(pa.array(rows[POINT], pa.list_(pa.float64())), parameters["n_features"])
        check_usable(points, usable_rows(points), features, on_error)
        detector = _detectors.take(bytes(state.get[0])) if state.exists else StreamDetector(**parameters)
        results = detector.process_many(points)
        state.update((_detectors.keep(detector),))
        wait(state, rows[_TIME])
        yield _with_results(rows.drop(columns=[POINT, _TIME, _WORD, _EVENT], errors="ignore"), results)

    return process


def _with_results(rows: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Add the results to the rows; those of a row that was skipped are missing."""
    is_scored = ~np.isnan(results.score)
    labels = pd.arrays.BooleanArray(results.is_anomaly.astype(np.bool_), ~is_scored)
    return rows.assign(**{SCORE: results.score, THRESHOLD: results.threshold, LABEL: labels})
