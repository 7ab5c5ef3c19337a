"""One detector per key on a stream: the same scores as on one machine, even after crashes."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.ml.functions import array_to_vector
from pyspark.sql import functions as F

from imondrian import InvalidInputError, MondrianForest, StreamDetector
from imondrian.base.errors import DamagedFileError
from imondrian.model_files import to_bytes
from imondrian.spark import watch
from imondrian.spark.detector_cache import DetectorCache
from imondrian.spark.point_columns import Features
from imondrian.spark.streaming import _sizes, check_categories
from tests.spark import streams
from tests.spark.conftest import FEATURES

pytestmark = pytest.mark.spark

START = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)  # half an hour before the end of daylight saving time in Berlin
N_KEYS, N_BATCHES = 3, 6
SMALL = {"window": 64, "max_samples": 16, "n_trees": 8, "warm_up": 10, "threshold": "kmeans"}


def rows_of(points, ids):
    """Rows one second apart."""
    return [(int(i), int(i) % N_KEYS, START + timedelta(seconds=int(i)), *map(float, points[i])) for i in ids]


def add_file(folder, rows, schema, number):
    """Write rows to a file that appears atomically."""
    names = [part.split()[0] for part in schema.split(", ")]
    kinds = {
        "long": pa.int64(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "double": pa.float64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
    }
    columns = [
        pa.array(column, kinds[part.split()[1]])
        for part, column in zip(schema.split(", "), zip(*rows, strict=True), strict=True)
    ]
    Path(folder).mkdir(parents=True, exist_ok=True)
    time.sleep(0.02)  # files are processed in order of age
    pq.write_table(pa.table(columns, names=names), f"{folder}/.part-{number}")
    Path(f"{folder}/.part-{number}").rename(f"{folder}/part-{number:03}.parquet")


def run(spark, folder, schema=streams.SCHEMA, key="key", features=FEATURES, **options):
    """Watch all files of a folder, one by one; return the result and the query."""
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in/*.parquet")
    writer = watch(stream, key, features, **{**SMALL, **options}).writeStream.format("parquet")
    writer = writer.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination(300)
    assert not query.isActive
    return spark.read.parquet(f"{folder}/out"), query


@pytest.fixture(scope="module")
def expected(points):
    """The results of detectors on one machine, key by key."""
    table = np.empty((600, 5))
    for key in range(N_KEYS):
        results = StreamDetector(3, **SMALL).process_many(points[:600][key::N_KEYS])
        table[key::N_KEYS] = columns_of(results)
    return table


def columns_of(results):
    """Score, surprise, threshold, label and incident, -1 if none is open."""
    return np.column_stack([results.score, results.surprise, results.threshold, results.is_anomaly, results.incident])


def mixed_rows_of(points, ids):
    """Rows with gaps, text and booleans."""
    rows = []
    for i, key, when, a, b, c in rows_of(points, ids):
        country = "KP" if i == 550 else ["FR", "DE", "FR", None, "FR"][i % 5]
        rows.append(
            (i, key, when, a, None if i % 7 == 0 else b, float("nan") if i % 11 == 0 else c, country, i % 2 > 0)
        )
    return rows


def expected_of_mixed(rows, **options):
    """The results of detectors on one machine, for rows as dictionaries, key by key."""
    table = np.empty((len(rows), 5))
    for key in range(N_KEYS):
        detector = StreamDetector(5, categorical=["country", "paid"], **{**SMALL, **options})
        mine = [dict(zip(streams.MIXED_FEATURES, row[3:], strict=True)) for row in rows[key::N_KEYS]]
        table[key::N_KEYS] = columns_of(detector.process_many(mine))
    return table


def table_of(result, n_rows=600):
    rows = result.orderBy("id").collect()
    assert [row.id for row in rows] == list(range(n_rows))
    incidents = [-1 if row.incident is None else row.incident for row in rows]
    results = [[row.anomaly_score, row.surprise, row.threshold, row.is_anomaly] for row in rows]
    return np.column_stack([results, incidents]).astype(float)


@pytest.fixture
def input_folder(points, tmp_path):
    """A folder with six files, each with its rows in random order."""
    for number, ids in enumerate(np.split(np.arange(600), N_BATCHES)):
        add_file(
            tmp_path / "in", rows_of(points, np.random.default_rng(number).permutation(ids)), streams.SCHEMA, number
        )
    return tmp_path


def test_scores_are_the_same_as_those_of_detectors_on_one_machine(spark, input_folder, expected):
    result, _ = run(spark, input_folder, time="time")
    names = ["anomaly_score", "surprise", "threshold", "is_anomaly", "incident"]
    assert result.columns == ["id", "key", "time", *FEATURES, *names]
    np.testing.assert_array_equal(table_of(result), expected)
    assert expected[:, 3].sum() > 0
    assert (expected[:, 4] >= 0).any()  # incidents go on from one micro-batch to the next


def test_a_restart_continues_from_the_checkpoint(spark, points, expected, tmp_path):
    """Few groups with several keys each; another number of groups is refused."""
    batches = np.split(np.arange(600), N_BATCHES)
    options = {"time": "time", "n_groups": 2, "idle": None}
    for number, ids in enumerate(batches):
        add_file(tmp_path / "in", rows_of(points, ids), streams.SCHEMA, number)
        if number in (1, N_BATCHES - 1):
            result, _ = run(spark, tmp_path, **options)
    np.testing.assert_array_equal(table_of(result), expected)
    add_file(tmp_path / "in", rows_of(points, [0]), streams.SCHEMA, N_BATCHES)
    with pytest.raises(Exception, match="created with n_groups=2, but this query has n_groups=1"):
        run(spark, tmp_path, **options | {"n_groups": 1})


def test_a_checkpoint_with_one_state_per_key_is_refused(spark, points, tmp_path):
    """Keys that are integers look like groups to Spark, so that imondrian must refuse their state."""
    add_file(tmp_path / "in", rows_of(points, range(6)), streams.SCHEMA, 0)
    run(spark, tmp_path, learn_anomalies=False)
    add_file(tmp_path / "in", rows_of(points, range(6, 12)), streams.SCHEMA, 1)
    with pytest.raises(Exception, match=r"use a new checkpoint|STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        run(spark, tmp_path, n_groups=1)


@pytest.mark.parametrize("key", [["text", "flag"], ["real"]], ids=str)
def test_keys_of_other_types_have_their_own_detectors(spark, points, tmp_path, key):
    """Text with quotes, booleans, floats, NaN and nulls."""
    schema = "id long, text string, flag boolean, real double, time timestamp, a double, b double, c double"
    texts, reals = ['a"b', None, "", "a"], [0.0, 1.5, float("nan"), None]
    rows = [
        (i, texts[i % 4], [True, None][i // 4 % 2], reals[i % 4], START + timedelta(seconds=i), *map(float, points[i]))
        for i in range(96)
    ]
    for number in range(2):
        add_file(tmp_path / "in", rows[48 * number : 48 * number + 48], schema, number)
    result, _ = run(spark, tmp_path, schema, key, n_groups=2, time="time")
    names = [row[1:3] if key[0] == "text" else str(row[3]) for row in rows]
    expected = np.empty((96, 5))
    for name in set(names):
        mine = [i for i in range(96) if names[i] == name]
        expected[mine] = columns_of(StreamDetector(3, **SMALL).process_many(points[mine]))
    np.testing.assert_array_equal(table_of(result, 96), expected)


def test_without_a_time_the_order_depends_only_on_the_rows(spark, input_folder, points, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for number, ids in enumerate(np.split(np.arange(600), N_BATCHES)):
        add_file(other / "in", rows_of(points, ids), streams.SCHEMA, number)
    np.testing.assert_array_equal(table_of(run(spark, input_folder)[0]), table_of(run(spark, other)[0]))


def start_stream(folder, *options):
    command = [sys.executable, "-m", "tests.spark.streams", str(folder), *options]
    return subprocess.Popen(command, start_new_session=True, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL)


def commits(folder):
    return len(list(Path(folder, "checkpoint", "commits").glob("[0-9]*")))


def kill(process, folder, n_commits, seconds):
    """Kill a query and its Java process some seconds after it has committed some batches."""
    try:
        deadline = time.monotonic() + 400
        while commits(folder) < n_commits and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    assert n_commits <= commits(folder) < N_BATCHES


@pytest.mark.parametrize("missing", ["median", "previous"])
def test_text_booleans_and_gaps_give_the_same_scores_after_a_restart(spark, points, tmp_path, missing):
    rows = mixed_rows_of(points, range(120))
    add_file(tmp_path / "in", rows[:60], streams.MIXED_SCHEMA, 0)
    options = {"schema": streams.MIXED_SCHEMA, "features": streams.MIXED_FEATURES, "missing": missing}
    options |= {"time": "time", "lateness": "10 minutes"}
    run(spark, tmp_path, **options)
    add_file(tmp_path / "in", rows[60:], streams.MIXED_SCHEMA, 1)
    result, _ = run(spark, tmp_path, **options)
    np.testing.assert_array_equal(table_of(result, 120), expected_of_mixed(rows, missing=missing))


def test_a_query_with_other_categories_than_its_checkpoint_is_refused():
    detector = StreamDetector(2, categorical=[0], **SMALL)
    with pytest.raises(InvalidInputError, match=r"have the categorical features \[0\], but this query has \[0, 1\]"):
        check_categories(detector, Features(["a", "b"], 2, (0, 1)))


def test_a_killed_query_continues_from_its_checkpoint(spark, points, tmp_path):
    """Killed twice: while idle between two batches, and within a batch. Rows have text, booleans and gaps."""
    batches = np.split(np.arange(600), N_BATCHES)
    for number in range(2):
        add_file(tmp_path / "in", mixed_rows_of(points, batches[number]), streams.MIXED_SCHEMA, number)
    kill(start_stream(tmp_path, "endless"), tmp_path, n_commits=2, seconds=1.0)
    for number in range(2, N_BATCHES):
        add_file(tmp_path / "in", mixed_rows_of(points, batches[number]), streams.MIXED_SCHEMA, number)
    kill(start_stream(tmp_path, "endless"), tmp_path, n_commits=3, seconds=0.3)
    assert start_stream(tmp_path).wait(400) == 0
    expected = expected_of_mixed(mixed_rows_of(points, range(600)))
    np.testing.assert_array_equal(table_of(spark.read.parquet(f"{tmp_path}/out")), expected)


def test_a_thousand_keys_equal_a_thousand_detectors(spark, tmp_path):
    X = np.random.default_rng(1).normal(size=(10_000, 3))
    rows = [(i, i % 1000, START + timedelta(seconds=i), *map(float, X[i])) for i in range(10_000)]
    for number in range(2):
        add_file(tmp_path / "in", rows[number * 5000 : number * 5000 + 5000], streams.SCHEMA, number)
    sizes = {"window": 8, "max_samples": 4, "n_trees": 2, "warm_up": 2}
    result, query = run(spark, tmp_path, time="time", **sizes)
    expected = np.empty((10_000, 5))
    for key in range(1000):
        expected[key::1000] = columns_of(StreamDetector(3, **SMALL | sizes).process_many(X[key::1000]))
    np.testing.assert_array_equal(table_of(result, 10_000), expected)
    assert query.lastProgress["stateOperators"][0]["numRowsTotal"] == 64  # groups of keys


@pytest.mark.parametrize("options", [{}, {"identity": "id"}], ids=["late", "late and repeated"])
def test_late_and_repeated_rows_are_dropped(spark, points, tmp_path, options):
    """Spark compares rows with the watermark of the previous batch, computed from the batches before that one."""
    first, late = rows_of(points, range(100)), rows_of(points, range(200, 210))
    later = [(1000 + i, key, START + timedelta(hours=2, seconds=i), *x) for i, (_, key, _, *x) in enumerate(first)]
    last = [(number, 0, START + timedelta(hours=3, seconds=number), 0.0, 0.0, 0.0) for number in (2000, 2001)]
    for number, rows in enumerate([first, [*first[:7], *later], last[:1], [*late, *last]]):
        add_file(tmp_path / "in", rows, streams.SCHEMA, number)
    result, _ = run(spark, tmp_path, time="time", lateness="10 minutes", **options)
    ids = [*range(100), *([] if options else range(7)), *range(1000, 1100), *([] if options else [2000]), 2000, 2001]
    assert sorted(row.id for row in result.collect()) == sorted(ids)


def test_an_idle_detector_is_removed_by_the_watermark(spark, points, tmp_path):
    rows = rows_of(points, range(90))
    later = [(200 + i, 0, START + timedelta(hours=5 + i), 0.0, 1.0, 2.0) for i in range(4)]
    add_file(tmp_path / "in", rows, streams.SCHEMA, 0)
    for number, row in enumerate(later, 1):
        add_file(tmp_path / "in", [row], streams.SCHEMA, number)
    result, query = run(spark, tmp_path, time="time", lateness="1 minute", idle=timedelta(hours=2))
    assert query.lastProgress["stateOperators"][0]["numRowsTotal"] == 1
    assert result.count() == 94


def test_an_idle_detector_is_removed_by_the_clock(spark, points, tmp_path):
    """With a clock timeout, a query continues after all rows are read, to remove idle keys."""
    add_file(tmp_path / "in", rows_of(points, range(60)), streams.SCHEMA, 0)
    stream = spark.readStream.schema(streams.SCHEMA).parquet(f"{tmp_path}/in/*.parquet")
    watched = watch(stream, "key", FEATURES, idle=timedelta(milliseconds=1), **SMALL)
    query = watched.writeStream.format("noop").option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    try:
        deadline, n_keys = time.monotonic() + 240, []
        while time.monotonic() < deadline and n_keys[-1:] != [0]:
            n_keys = [
                each["stateOperators"][0]["numRowsTotal"] for each in query.recentProgress if each["stateOperators"]
            ]
            time.sleep(0.1)
    finally:
        query.stop()
    assert n_keys[0] == N_KEYS
    assert n_keys[-1] == 0


def test_unusable_rows_follow_on_error(spark, points, tmp_path):
    rows = rows_of(points, range(60))
    for place, value in {10: float("nan"), 20: None, 30: float("inf")}.items():
        rows[place] = (*rows[place][:4], value, 0.0)
    add_file(tmp_path / "in", rows, streams.SCHEMA, 0)
    with pytest.raises(Exception, match=r"Invalid input: the feature 'b' of a row is"):
        run(spark, tmp_path, time="time", missing="raise")
    result, _ = run(spark, tmp_path, time="time", missing="raise", on_error="skip")  # continues from the checkpoint
    missing = result.where("anomaly_score IS NULL").orderBy("id").collect()
    assert [(row.id, row.is_anomaly) for row in missing] == [(10, None), (20, None), (30, None)]
    assert all(row.surprise is None for row in missing)
    assert all(row.threshold is not None for row in missing)
    good = [i for i in range(60) if i not in {10, 20, 30}]
    for key in range(N_KEYS):
        scores = StreamDetector(3, **SMALL).process_many(points[[i for i in good if i % N_KEYS == key]]).score
        found = [
            row.anomaly_score
            for row in result.where(f"key = {key} AND anomaly_score IS NOT NULL").orderBy("id").collect()
        ]
        np.testing.assert_array_equal(found, scores)


def test_values_of_all_types_are_unchanged(spark, tmp_path):
    """Integers beside nulls, times beyond the range of pandas, and other types."""
    frame = spark.range(20).select(
        "id",
        F.when(F.col("id") % 2 == 0, F.lit(2**62 + 1)).alias("big"),
        F.expr("timestamp'9999-12-31 23:59:59.999999'").alias("end"),
        F.expr("timestamp_micros(1729989000000000 + id)").alias("night"),
        F.expr("date'1500-01-01'").alias("day"),
        F.expr("decimal(1) / 3").alias("third"),
        F.expr("CASE WHEN id > 3 THEN id % 2 = 0 END").alias("even"),
        F.expr("array(id, NULL)").alias("list"),
        F.expr("named_struct('x', id, 'y', 'text')").alias("pair"),
        F.expr("encode('abc', 'utf-8')").alias("bytes"),
        F.expr("array(double(id), 1.0D)").alias("point"),
        F.expr("CASE WHEN id % 3 = 0 THEN double('nan') WHEN id % 3 = 1 THEN 0.1D END").alias("nan"),
        F.expr("float(0.1)").alias("float"),
        F.expr("timestamp_ntz'9999-12-31 23:59:59.999999'").alias("ntz"),
        F.expr("interval '200000 01:02:03.000004' day to second").alias("days"),
        F.expr("interval '3-1' year to month").alias("months"),
        F.expr("named_struct('m', map(id, 'x'))").alias("with map"),
        array_to_vector(F.expr("array(double(id), 1.0D)")).alias("vector"),
        F.lit("it`s. odd").alias("odd `name`. yes"),
    )
    frame.write.parquet(f"{tmp_path}/in")
    stream = spark.readStream.schema(frame.schema).parquet(f"{tmp_path}/in")
    watched = watch(stream, ["even", "odd `name`. yes"], "point", n_features=2, **SMALL)
    results = ("anomaly_score", "surprise", "threshold", "is_anomaly", "incident")
    assert watched.drop(*results).dtypes == frame.dtypes
    query = watched.writeStream.format("parquet").option("path", f"{tmp_path}/out")
    query.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True).start().awaitTermination(120)
    result = spark.read.parquet(f"{tmp_path}/out")
    ours, theirs = (some.drop("months", *results).orderBy("id") for some in (result, frame))
    assert repr(ours.collect()) == repr(theirs.collect())  # as text, in which NaN equals NaN
    assert result.where("months = interval '3-1' year to month").count() == 20
    assert result.where("anomaly_score IS NOT NULL").count() == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "nowhere"}, "no column 'nowhere'"),
        (
            {"features": ["a", "time"]},
            "'time' must be a column of numbers, text or booleans, but its type is timestamp",
        ),
        ({"time": "a"}, "'a' must hold timestamps, but its type is double"),
        ({"lateness": "1 hour"}, "lateness requires time"),
        ({"idle": 5}, "idle must be a timedelta above 0, but is 5"),
        ({"window": 0}, "window must be between 1"),
        ({"features": "list"}, "n_features must be given if one column holds the features"),
        ({"n_features": 2}, "n_features is 2, but 3 features are named"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"n_groups": 0}, "n_groups must be between 1"),
        ({"preset": "best"}, "best"),
        ({"rules": {"side": {"a": "high"}}}, "side must have features of the rows, but has 'a'; .* have no names"),
    ],
)
def test_invalid_arguments_are_named(spark, tmp_path, arguments, message):
    stream = spark.readStream.schema(f"{streams.SCHEMA}, list array<double>").parquet(str(tmp_path))
    with pytest.raises(InvalidInputError, match=message):
        watch(stream, **{"key": "key", "features": FEATURES, **arguments})


# -- detectors cached by a worker ---------------------------------------------------------------------------------


def test_a_detector_is_cached_under_its_bytes(points):
    detectors, detector = DetectorCache(), StreamDetector(3, **SMALL)
    detector.process_many(points[:100])
    content = detectors.put(detector)
    assert detectors.pop(content) is detector
    again = detectors.pop(content)  # no longer cached, so the bytes are read
    assert again is not detector
    assert to_bytes(again) == content


def test_equal_detectors_are_counted_once(points):
    detectors = DetectorCache(max_bytes=3 * StreamDetector(3, **SMALL).n_bytes)
    for _ in range(5):
        detector = StreamDetector(3, **SMALL)
        content = detectors.put(detector)
    assert detectors.pop(content) is detector


def test_the_cache_holds_the_latest_detectors(points):
    detectors = DetectorCache(max_bytes=3 * StreamDetector(3, **SMALL).n_bytes)
    originals = [StreamDetector(3, seed=seed, **SMALL) for seed in range(5)]
    contents = [detectors.put(detector) for detector in originals]
    taken = [detectors.pop(content) for content in contents]
    is_cached = [taken_one is original for taken_one, original in zip(taken, originals, strict=True)]
    assert is_cached == [False, False, True, True, True]


def test_a_state_that_is_not_a_detector_is_refused(points):
    with pytest.raises(DamagedFileError, match="must be a StreamDetector, but is MondrianForest"):
        DetectorCache().pop(to_bytes(MondrianForest(2).build(points[:10])))
    with pytest.raises(DamagedFileError, match="The state of a key"):
        DetectorCache().pop(b"nonsense")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_the_times_of_a_series_are_those_of_the_time_zone_of_the_session(spark, tmp_path, zone):
    schema, earlier = "id long, key int, time timestamp, load double", spark.conf.get("spark.sql.session.timeZone")
    rng, n_rows = np.random.default_rng(0), 300
    hours = [None if i in (50, 51) else START + timedelta(hours=i) for i in range(n_rows)]
    values = rng.normal(size=n_rows)
    rows = [(i, i % 2, hours[i - i % 2], float(values[i])) for i in range(n_rows)]
    for number, first in enumerate((0, 200)):
        add_file(tmp_path / "in", rows[first : first + 200], schema, number)
    options = {"window": 128, "max_samples": None, "n_trees": 5, "preset": "series", "time": "time"}
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame, _ = run(spark, tmp_path, schema, features=["load"], threshold=0.001, warm_up=None, **options)
        scores = {row["id"]: row["anomaly_score"] for row in frame.collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", earlier)
    for key in range(2):
        detector = StreamDetector(1, preset="series", window=128, n_trees=5)
        ordered = sorted(rows[key:200:2], key=lambda row: row[2] or START - timedelta(days=1)) + rows[200 + key :: 2]
        times = [None if row[2] is None else row[2].astimezone(ZoneInfo(zone)) for row in ordered]
        results = detector.process_many([[row[3]] for row in ordered], times)
        assert [scores[row[0]] for row in ordered] == results.score.tolist()


def test_sizes_follow_the_preset(spark, tmp_path):
    stream = spark.readStream.schema("id long, key int, load double").parquet(str(tmp_path))
    with pytest.raises(InvalidInputError, match="'series' has no shingles"):
        watch(stream, "key", ["load"], preset="series", shingle=2)
    assert _sizes("series", {"window": "preset", "n_trees": 3}) == {"window": "preset", "n_trees": 3}
    assert _sizes("practice", {"window": "preset", "max_samples": None, "n_trees": "preset"}) == {
        "window": 256,
        "max_samples": None,
        "n_trees": 24,
    }
