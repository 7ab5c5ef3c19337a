"""Rows per second on Spark with two cores: fit, score and watch, beside scikit-learn's forest in a pandas function.

Usage: python benchmarks/on_spark.py [n_rows], by default 10,000,000 rows of 10 features, in a Parquet file that is
written first. Prints a table and stores nothing. The times include reading the file, and summing the scores.
`python benchmarks/on_spark.py watch [n_features]` measures only `watch`, with micro-batches of 1,000 keys x 50 rows. It
also measures what Spark itself takes: the same rows, groups and bytes of state, with a function that returns constants.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sklearn.ensemble import IsolationForest

from imondrian.spark import fit, fit_by_key, score, watch

NAMES = [f"x{j}" for j in range(10)]
N_KEYS, ROWS_PER_STREAM, N_FILES, N_WARM_UP = 1000, 50, 10, 3
N_REPEATS = 3
N_GROUPS, BYTES_PER_KEY = 64, 55_000  # groups of keys in `watch`, and its state per key with 10 features
BARE = {"kind": "depth", "scale": None, "threshold": 0.5}  # the least work besides the forest itself


def main() -> None:
    """Measure all tasks alternately, and print the table; or measure `watch` alone."""
    if sys.argv[1:2] == ["watch"]:
        spark = session()
        with tempfile.TemporaryDirectory() as folder:
            report_stream(spark, folder, NAMES[: int(sys.argv[2]) if len(sys.argv) > 2 else None])
        spark.stop()
        return
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows"
        rows_of(spark, n_rows).repartition(8).write.parquet(path)
        df = spark.read.parquet(path)
        forest = fit(df, NAMES, **BARE)
        peer = fitted_peer(df)
        tasks: dict[str, Callable[[], Any]] = {
            "read and sum": lambda: (
                df.select(sum((F.col(name) for name in NAMES), F.lit(0.0)).alias("s")).agg(F.sum("s")).collect()
            ),
            "count copies": lambda: df.groupBy(*NAMES).count().agg(F.max("count")).collect(),
            "fit 100 x 256": lambda: fit(df, NAMES, **BARE),
            "score, depth": lambda: total(score(df, forest, NAMES)),
            "score, size": lambda: total(score(df, forest, NAMES, kind="size")),
            "scikit-learn: sample, fit": lambda: fitted_peer(df),
            "scikit-learn: score": lambda: total(df.withColumn("anomaly_score", peer_scores(peer)(*NAMES))),
            "1,000 keys: fit 100 x 256": lambda: fit_by_key(df, "key", NAMES, **BARE).agg(F.sum("n_points")).collect(),
        }
        print(f"{n_rows} rows of {len(NAMES)} features, Spark {spark.version} on two cores; medians of {N_REPEATS}")
        for name, seconds in median_seconds(tasks).items():
            print(f"{name:28} {seconds:8.1f} s {n_rows / seconds:12,.0f} rows/s", flush=True)
        report_stream(spark, f"{folder}/stream", NAMES)
    spark.stop()


def session() -> SparkSession:
    """Start Spark on two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "8g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "16")
    spark = (
        builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows_of(spark: SparkSession, n_rows: int) -> DataFrame:
    """Return distinct rows with a key."""
    columns = [F.randn(seed).alias(name) for seed, name in enumerate(NAMES)]
    return spark.range(n_rows).select("id", (F.col("id") % N_KEYS).cast("int").alias("key"), *columns)


def median_seconds(tasks: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median seconds of each task; the tasks alternate."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(N_REPEATS):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}


def total(df: DataFrame) -> Any:
    """Compute every score."""
    return df.agg(F.sum("anomaly_score")).collect()


def fitted_peer(df: DataFrame) -> IsolationForest:
    """Fit scikit-learn's forest to a sample that the driver collects, as is usual on Spark."""
    sample = df.select(*NAMES).sample(0.01, seed=0).toPandas()
    return IsolationForest(n_estimators=100, max_samples=256, random_state=0).fit(sample)


def peer_scores(peer: IsolationForest) -> Any:
    """Return a pandas function that scores with scikit-learn's forest."""

    @F.pandas_udf("double")
    def scores(batches: Iterator[tuple[pd.Series, ...]]) -> Iterator[pd.Series]:
        for columns in batches:
            yield pd.Series(-peer.score_samples(pd.concat(columns, axis=1, keys=NAMES)))

    return scores


def report_stream(spark: SparkSession, folder: str, names: list[str]) -> None:
    """Watch 1,000 keys file by file, and print the seconds of a micro-batch and the size of the state.

    The same is done with a function that only keeps the state and returns constants.
    """
    for _ in range(N_FILES):
        rows = rows_of(spark, N_KEYS * ROWS_PER_STREAM).select("id", "key", *names)
        rows.coalesce(1).write.mode("append").parquet(f"{folder}/in")
    schema = spark.read.parquet(f"{folder}/in").schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    for name, watched in (
        ("watch", watch(stream, "key", names, threshold="kmeans")),
        ("Spark alone", with_constants(stream)),
    ):
        report_query(name, watched, f"{folder}/{name}")


def with_constants(stream: DataFrame) -> DataFrame:
    """Return the stream with constant results, through the same groups and as much state as `watch`."""
    n_bytes = N_KEYS * BYTES_PER_KEY // N_GROUPS

    def process(_group: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        (content,) = state.get if state.exists else (os.urandom(n_bytes),)
        state.update((bytes(content),))
        for frame in frames:
            yield frame.drop(columns="group").assign(
                anomaly_score=0.5, surprise=0.0, threshold=0.5, is_anomaly=False, incident=-1
            )

    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in stream.schema.fields)
    schema = f"{columns}, anomaly_score double, surprise double, threshold double, is_anomaly boolean, incident long"
    groups = stream.withColumn("group", F.pmod(F.xxhash64("key"), F.lit(N_GROUPS))).groupBy("group")
    return groups.applyInPandasWithState(process, schema, "content binary", "append", "NoTimeout")


def report_query(name: str, watched: DataFrame, folder: str) -> None:
    """Run a query to its end, and print the seconds of its micro-batches and the size of its state."""
    writer = watched.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", folder).start()
    query.awaitTermination()
    progress = [each for each in query.recentProgress if each["numInputRows"] > 0]
    seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in progress]
    print(f"{name}: seconds of each micro-batch", *(f"{each:.1f}" for each in seconds))
    median, n_rows = statistics.median(seconds[N_WARM_UP:]), N_KEYS * ROWS_PER_STREAM
    print(f"{name + ', median after 3':28} {median:8.1f} s {n_rows / median:12,.0f} rows/s")
    state = progress[-1]["stateOperators"][0]
    size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(f"state: {state['memoryUsedBytes'] / 2**20:.0f} MB in memory, checkpoint {size / 2**20:.0f} MB on disk")


if __name__ == "__main__":
    main()
