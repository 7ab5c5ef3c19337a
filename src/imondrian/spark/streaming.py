"""One detector per key on a stream: Structured Streaming stores the state and restores it after a crash."""

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    FractionalType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from imondrian.base.column_names import INCIDENT, LABEL, SCORE, SURPRISE, THRESHOLD
from imondrian.base.defaults import (
    FROM_PRESET,
    KEYED_MAX_SAMPLES,
    KEYED_N_TREES,
    KEYED_WINDOW,
    MISSING_VALUES,
    PRESET,
    SERIES,
)
from imondrian.base.errors import InvalidInputError
from imondrian.base.option_types import (
    ON_ERROR,
    CountOrPreset,
    KindOrPreset,
    OnError,
    ScaleOrPreset,
    StreamCategorical,
    StreamMissing,
    StreamPresetName,
    ThresholdOrPreset,
)
from imondrian.engine.jit import Array
from imondrian.engine.series_views import MAX_SECONDS
from imondrian.forest.inputs import as_count
from imondrian.rows.named_rows import CodedRows
from imondrian.spark.arrow_points import check_usable, coded_column, points_of, usable_rows
from imondrian.spark.column_transfer import from_pandas, pandas_columns, pandas_fields, transfer_name
from imondrian.spark.detector_cache import DetectorCache
from imondrian.spark.key_group import GroupCache, GroupResults, GroupSettings, KeyGroup, detector_settings, fits_fleet
from imondrian.spark.point_columns import (
    POINT,
    Features,
    check_choice,
    check_new_names,
    checked_names,
    column_named,
    features_to_learn,
    quoted,
    with_known_count,
)
from imondrian.stream.detector import Results, StreamDetector
from imondrian.stream.stream_parameters import check_rules_match

_TIME, _LOCAL, _HASH, _EVENT = "imondrian_time", "imondrian_local", "imondrian_hash", "imondrian_event"
_KEY, _GROUP = "imondrian_key", "imondrian_group"
_EXTRA_COLUMNS = [POINT, _TIME, _LOCAL, _HASH, _EVENT, _KEY, _GROUP]
_EXACT_TYPES = (IntegralType, FractionalType, BooleanType, DateType, TimestampType, TimestampNTZType, BinaryType)
MAX_GROUPS = 2**20
_KEYED_SIZES = {"window": KEYED_WINDOW, "max_samples": KEYED_MAX_SAMPLES, "n_trees": KEYED_N_TREES}
_EARLIEST = -(2**63)
_RESULTS = [
    StructField(SCORE, DoubleType()),
    StructField(SURPRISE, DoubleType()),
    StructField(THRESHOLD, DoubleType()),
    StructField(LABEL, BooleanType()),
    StructField(INCIDENT, LongType()),
]
_cache, _groups = DetectorCache(), GroupCache()
SetTimeout = Callable[[GroupState, Any], None]
Process = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def watch(  # noqa: PLR0913
    stream: DataFrame,
    key: str | Sequence[str],
    features: str | Sequence[str],
    window: CountOrPreset = "preset",
    max_samples: CountOrPreset | None = "preset",
    *,
    n_trees: CountOrPreset = "preset",
    threshold: ThresholdOrPreset = "preset",
    preset: StreamPresetName = PRESET,
    kind: KindOrPreset = "preset",
    scale: ScaleOrPreset = "preset",
    n_features: int | None = None,
    n_groups: int = 64,
    time: str | None = None,
    lateness: str | None = None,
    identity: str | Sequence[str] | None = None,
    idle: timedelta | None = None,
    categorical: StreamCategorical = (),
    missing: StreamMissing = MISSING_VALUES,
    on_error: OnError = "raise",
    **options: Any,
) -> DataFrame:
    """Score the rows of a stream with one detector per key, then learn them.

    The results of a key are those of a `StreamDetector` with these settings, bit for bit; all keys have the same seed.
    The detectors are in Spark's state store: after a crash they are restored from the checkpoint and continue bit for
    bit. The rows of a micro-batch have no order, so the rows of each key are sorted by `time`. Rows with the same time,
    or all rows if `time` is not given, are sorted by a hash of their values.

    Parameters
    ----------
    stream : DataFrame
        A streaming frame.
    key : str or list of str
        One or more columns; each combination of values has its own detector.
    features : list of str, or str
        Columns of numbers, text and booleans, or one column of arrays or vectors. Text and booleans are categories.
    window, max_samples, n_trees : int or "preset", default="preset"
        As in `StreamDetector`. By default 256, 64 and 24, because there is one detector for each key. With the preset
        "series", the defaults are those of `StreamDetector`: a key with one feature needs 13 MB, so choose a smaller
        window if there are many keys.
    threshold, preset, kind, scale
        As in `StreamDetector`. The preset "series" uses the times in `time`, with the hour in the time zone of the
        session.
    n_features : int, optional
        Number of features; required if one column holds them, because the rows are not known in advance.
    n_groups : int, default=64
        Number of groups into which the keys are divided. The detectors of a group are one value in the state store, and
        its rows are processed in one pass. Choose about one group for 10 to 50 keys, and at least twice as many as
        cores. The number cannot be changed for a checkpoint. It has no effect if each key has its own state, which is
        the case with the preset "series", categories, `missing="indicator"`, a shingle, `learn_anomalies=False`, or a
        key whose values are nested, intervals, or text with a collation.
    time : str, optional
        A column of timestamps, by which the rows of a micro-batch are ordered. With the preset "series", also the times
        of the rows; a null is an unknown time.
    lateness : str, optional
        How late a row may arrive ("10 minutes"): sets Spark's watermark on `time`; Spark drops rows that arrive later.
    identity : str or list of str, optional
        Columns that identify a row: duplicates are dropped. With `lateness`, Spark remembers identities as long as the
        watermark requires, otherwise forever.
    idle : timedelta, optional
        How long a detector may be without rows before it is removed, measured by the watermark if there is one,
        otherwise by the clock. By default, detectors are never removed.
    categorical : sequence of str or int, or mask, default=()
        Further features that are categories, as in `fit`.
    missing : "median", "previous", "indicator" or "raise", default="median"
        What to do with missing numbers (null or NaN), as in `StreamDetector`; medians and previous values are those of
        the key.
    on_error : "raise" or "skip", default="raise"
        How to handle a row that cannot be used (an infinite value, no value at all, or a missing number with
        ``missing="raise"``): fail (again after each restart, until on_error is "skip"), or set its score to null.
    **options
        Other parameters of `StreamDetector`: seed, warm_up, learn_anomalies, shingle, rules (which name features by
        index). A detector keeps all settings it was created with, even if the query is restarted with other values.

    Returns
    -------
    DataFrame
        A streaming frame with all columns, and `anomaly_score`, `surprise`, `threshold` (the score above which the row
        is an anomaly), `is_anomaly` and `incident` (the number of the key's open incident, null if there is none).
        Write it with the output mode "append": every row is emitted once and never changes.
    """
    keys = checked_names(stream, key)
    column, feature_info = features_to_learn(stream, features, categorical)
    check_new_names(stream, [field.name for field in _RESULTS])
    check_choice(on_error, "on_error", ON_ERROR)
    feature_info = _with_feature_count(feature_info, n_features, categorical)
    parameters = options | {
        "n_features": feature_info.n_features,
        **_sizes(preset, {"window": window, "max_samples": max_samples, "n_trees": n_trees}),
        "threshold": threshold,
        "preset": preset,
        "kind": kind,
        "scale": scale,
        "categorical": list(feature_info.categorical),
        "missing": missing,
        "on_error": "skip",  # with "raise", an error is raised before the detector gets the rows
    }
    detector = StreamDetector(**parameters)  # checks the parameters
    check_rules_match(detector.rules, detector.parameters["n_features"], None)  # detectors get rows without names
    rows = _without_late_rows(stream, time, lateness, identity)
    timeout, set_timeout = _idle_timeout(idle, lateness)
    extra_columns = [
        coded_column(column, feature_info).alias(POINT),
        _time_in_microseconds(time).alias(_TIME),
        _local_seconds(time).alias(_LOCAL),
        _row_hash(rows).alias(_HASH),
    ]
    if lateness is not None:
        extra_columns.append(
            column_named(str(time)).alias(_EVENT)  # the original column, which carries Spark's watermark
        )
    as_count(n_groups, "n_groups", 1, MAX_GROUPS)
    if fits_fleet(detector) and all(_is_exact(rows.schema[name].dataType) for name in keys):
        key_text = F.to_json(F.struct(*(pandas_columns(rows.schema)[rows.schema.names.index(name)] for name in keys)))
        extra_columns += [key_text.alias(_KEY), F.pmod(F.xxhash64(key_text), F.lit(n_groups)).alias(_GROUP)]
        grouping = [_GROUP]
        settings = GroupSettings(detector_settings(detector), n_groups, feature_info, on_error)
        milliseconds = None if idle is None else _milliseconds(idle)
        process: Process = partial(_process_group, _GroupQuery(settings, milliseconds, lateness is not None))
    else:
        grouping = [transfer_name(rows.schema, name) for name in keys]
        process = partial(_process_key, _KeyQuery(parameters, feature_info, on_error, set_timeout))
    groups = rows.select(*pandas_columns(rows.schema), *extra_columns).groupBy(*grouping)
    schema = StructType([*pandas_fields(rows.schema), *_RESULTS])
    results = groups.applyInPandasWithState(process, schema, "model binary", "append", timeout)
    return results.select(*from_pandas(rows.schema), *(field.name for field in _RESULTS))


def _is_exact(data_type: DataType) -> bool:
    """Return True if values of this type are equal exactly when their texts are equal."""
    if isinstance(data_type, StringType):
        return data_type.collation == StringType().collation
    return isinstance(data_type, _EXACT_TYPES)


def _sizes(preset: StreamPresetName, sizes: dict[str, Any]) -> dict[str, Any]:
    """Return `sizes` with each value "preset" replaced by its default for detectors with a key.

    With the preset "series", return `sizes` unchanged: that preset has its own values.
    """
    if preset == SERIES:
        return sizes
    return {name: _KEYED_SIZES[name] if size == FROM_PRESET else size for name, size in sizes.items()}


def _with_feature_count(features: Features, n_features: int | None, categorical: Any) -> Features:
    """Return the features with their number, or raise InvalidInputError if it is unknown."""
    if features.n_features is None:
        if n_features is None:
            raise InvalidInputError("n_features must be given if one column holds the features.")
        return with_known_count(features, n_features, categorical)
    if n_features not in (None, features.n_features):
        raise InvalidInputError(f"n_features is {n_features}, but {features.n_features} features are named.")
    return features


def _without_late_rows(
    stream: DataFrame, time: str | None, lateness: str | None, identity: str | Sequence[str] | None
) -> DataFrame:
    """Return the stream without late rows and duplicates, which Spark drops."""
    if time is not None:
        data_type = stream.schema[checked_names(stream, time)[0]].dataType
        if not isinstance(data_type, TimestampType):
            found = data_type.simpleString()
            raise InvalidInputError(f"The column {time!r} must hold timestamps, but its type is {found}.")
    if lateness is not None:
        if time is None:
            raise InvalidInputError(f"lateness requires time, but lateness is {lateness!r} and time is None.")
        stream = stream.withWatermark(quoted(time), lateness)
    if identity is None:
        return stream
    names = checked_names(stream, identity)
    return stream.dropDuplicates(names) if lateness is None else stream.dropDuplicatesWithinWatermark(names)


def _time_in_microseconds(time: str | None) -> Column:
    """Return the time of a row in microseconds; rows without a time come first."""
    return F.lit(0).cast("long") if time is None else F.coalesce(F.unix_micros(column_named(time)), F.lit(_EARLIEST))


def _local_seconds(time: str | None) -> Column:
    """Return the time of a row in seconds since 1970 on the clock of the session's time zone; null if not known."""
    if time is None:
        return F.lit(None).cast("double")
    local = F.unix_micros(F.from_utc_timestamp(column_named(time), F.current_timezone())) / F.lit(1e6)
    return F.when(F.abs(local) <= MAX_SECONDS, local)


def _row_hash(rows: DataFrame) -> Column:
    """Return a 64-bit hash of the values of a row, without the columns that Spark cannot hash (maps, variants)."""
    columns = [column_named(field.name) for field in rows.schema.fields if _can_hash(field.dataType)]
    return F.xxhash64(*columns, *(column.isNull() for column in columns))  # xxhash64 ignores nulls


def _can_hash(data_type: DataType) -> bool:
    """Return True if Spark can hash values of this type."""
    if isinstance(data_type, StructType):
        return all(_can_hash(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _can_hash(data_type.elementType)
    return not isinstance(data_type, (MapType, VariantType))


def _idle_timeout(idle: timedelta | None, lateness: str | None) -> tuple[str, SetTimeout]:
    """Return the timeout mode for idle detectors, and a function to set a timeout.

    With a watermark the mode is event time even if detectors never expire, because in that mode Spark drops late rows.
    """
    if idle is not None and (not isinstance(idle, timedelta) or idle <= timedelta()):
        raise InvalidInputError(f"idle must be a timedelta above 0, but is {idle!r}.")
    uses_watermark = lateness is not None
    if idle is None:
        return GroupStateTimeout.EventTimeTimeout if uses_watermark else GroupStateTimeout.NoTimeout, _no_timeout
    milliseconds = _milliseconds(idle)
    if uses_watermark:
        return GroupStateTimeout.EventTimeTimeout, partial(_timeout_by_watermark, milliseconds)
    return GroupStateTimeout.ProcessingTimeTimeout, partial(_timeout_by_clock, milliseconds)


def _milliseconds(idle: timedelta) -> int:
    return max(idle // timedelta(milliseconds=1), 1)


def _no_timeout(state: GroupState, times: Any) -> None:
    """Never remove the detector."""


def _timeout_by_clock(milliseconds: int, state: GroupState, times: Any) -> None:  # noqa: ARG001
    """Remove the detector after `milliseconds` without rows."""
    state.setTimeoutDuration(milliseconds)


def _timeout_by_watermark(milliseconds: int, state: GroupState, times: Any) -> None:
    """Remove the detector when the watermark is `milliseconds` after its last row."""
    latest = int(times.max()) // 1000
    state.setTimeoutTimestamp(max(latest, state.getCurrentWatermarkMs()) + milliseconds)


class _KeyQuery(NamedTuple):
    """The settings of a query with one state per key."""

    parameters: dict[str, Any]  # of a new detector
    features: Features
    on_error: str
    set_timeout: SetTimeout


class _GroupQuery(NamedTuple):
    """The settings of a query with one state per group of keys."""

    settings: GroupSettings
    idle: int | None  # milliseconds after which a key without rows is removed
    uses_watermark: bool


# A worker unpickles the function of a query for every task. Functions of this module are pickled by name, so that all
# tasks of a worker share the caches; a nested function would get copies of them, which are empty.


def _process_key(
    query: _KeyQuery, _key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Process the rows of one key in a micro-batch with its detector."""
    _ignore_warnings_of_spark()
    if state.hasTimedOut:
        state.remove()
        return
    rows = pd.concat(frames).sort_values([_TIME, _HASH], kind="stable", ignore_index=True)
    features = query.features
    detector = _cache.pop(bytes(state.get[0])) if state.exists else StreamDetector(**query.parameters)
    check_categories(detector, features)
    points = points_of(pa.array(rows[POINT], pa.list_(pa.float64())), features._replace(categorical=()))
    is_usable = usable_rows(points, features.categorical, detector.parameters["missing"])
    check_usable(points, is_usable, features, query.on_error)
    points[~is_usable] = np.nan  # the detector skips these rows
    times = rows[_LOCAL].to_numpy(np.float64) if detector.preset == SERIES else None
    results = detector.process_many(points.view(CodedRows), times)
    state.update((_cache.put(detector),))
    query.set_timeout(state, rows[_TIME])
    yield _with_results(rows.drop(columns=_EXTRA_COLUMNS, errors="ignore"), results)


def _process_group(
    query: _GroupQuery, key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Process the rows of a group of keys in a micro-batch with its detectors."""
    _ignore_warnings_of_spark()
    n_groups = query.settings.n_groups
    name = query.settings.detector, n_groups, key
    group = _groups.pop(name, bytes(state.get[0]), n_groups) if state.exists else KeyGroup(n_groups)
    now = 0
    if query.idle is not None:
        now = state.getCurrentWatermarkMs() if query.uses_watermark else state.getCurrentProcessingTimeMs()
    if state.hasTimedOut:
        _store(name, group, state, now, uses_watermark=query.uses_watermark)
        return
    rows = pd.concat(frames, ignore_index=True)
    order = np.lexsort((rows[_HASH].to_numpy(), rows[_TIME].to_numpy()))
    points = points_of(pa.array(rows[POINT], pa.list_(pa.float64())), query.settings.features)
    ordered = group.process(rows[_KEY].to_numpy()[order], points[order], query.settings)
    if query.idle is not None:
        group.deadlines |= _deadlines(rows, now, query.idle, uses_watermark=query.uses_watermark)
    _store(name, group, state, now, uses_watermark=query.uses_watermark)
    yield _with_results(rows.drop(columns=_EXTRA_COLUMNS, errors="ignore"), _in_order_of_rows(ordered, order))


def _ignore_warnings_of_spark() -> None:
    """Ignore a warning that Spark's own code causes for every key."""
    warnings.filterwarnings("ignore", "The behavior of DataFrame concatenation", FutureWarning)


def _in_order_of_rows(ordered: GroupResults, order: Array) -> GroupResults:
    """Return results in the order of the rows; `order` is the order in which the rows were processed."""
    positions = np.empty_like(order)
    positions[order] = np.arange(order.size)
    return GroupResults(*(column[positions] for column in ordered))


def _store(name: Hashable, group: KeyGroup, state: GroupState, now: int, *, uses_watermark: bool) -> None:
    """Remove idle keys of a group, store the others, and set the timeout for the next key that may become idle."""
    group.remove_before(now)
    if group.n_keys == 0:
        state.remove()
        return
    state.update((_groups.put(name, group),))
    if group.deadlines:
        earliest = max(min(group.deadlines.values()), now + 1)
        if uses_watermark:
            state.setTimeoutTimestamp(earliest)
        else:
            state.setTimeoutDuration(earliest - now)


def _deadlines(rows: pd.DataFrame, now: int, milliseconds: int, *, uses_watermark: bool) -> dict[str, int]:
    """Return the time in milliseconds after which each key of the rows is removed."""
    if not uses_watermark:
        return dict.fromkeys(rows[_KEY], now + milliseconds)
    latest = rows.groupby(_KEY, sort=False)[_TIME].max() // 1000
    return {key: max(int(time), now) + milliseconds for key, time in latest.items()}


def check_categories(detector: StreamDetector, features: Features) -> None:
    """Raise InvalidInputError if the detector of a key was created by a query with other categories."""
    created, current = detector.parameters["categorical"], list(features.categorical)
    if created != current:
        raise InvalidInputError(
            f"The detectors in the checkpoint have the categorical features {created}, but this query has {current}:"
            " use a new checkpoint."
        )


def _with_results(rows: pd.DataFrame, results: Results | GroupResults) -> pd.DataFrame:
    """Add the results to the rows; score, surprise and label of a skipped row are null."""
    is_scored = ~np.isnan(results.score)
    labels = pd.arrays.BooleanArray(results.is_anomaly.astype(np.bool_), ~is_scored)
    incidents = pd.arrays.IntegerArray(results.incident.astype(np.int64), results.incident < 0)
    columns = {SCORE: results.score, SURPRISE: results.surprise, THRESHOLD: results.threshold}
    return rows.assign(**columns, **{LABEL: labels, INCIDENT: incidents})
