"""The examples of docs/spark.md run unchanged; only Kafka is replaced by files."""

import re
from pathlib import Path

import pytest
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

EXAMPLES = re.findall(r"```py\n(.*?)```", Path(__file__).parents[2].joinpath("docs", "spark.md").read_text(), re.DOTALL)


FILES = ("measurements", "model.imf", "anomalies", "orders", "models", "pipeline-model")


@pytest.fixture
def rows(spark, tmp_path):
    columns = [F.randn(seed).alias(name) for seed, name in enumerate("xyz")]
    spark.range(600).select("id", (F.col("id") % 3).cast("string").alias("machine"), *columns).write.parquet(
        f"{tmp_path}/measurements"
    )
    amount = F.when(F.col("id") % 9 > 0, F.exp(F.randn(7))).alias("amount")
    categories = ("id % 7 = 0 AS paid", "int(id % 4) AS branch", "CASE WHEN id = 5 THEN 'KP' ELSE 'FR' END AS country")
    spark.range(600).select(*map(F.expr, categories), amount).write.parquet(f"{tmp_path}/orders")
    return spark.read.parquet(f"{tmp_path}/measurements")


class WithoutKafka:
    """A session that reads Kafka streams from files of JSON lines."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.readStream = spark, folder, self

    def __getattr__(self, name):
        return getattr(self.spark, name)

    def format(self, name):
        assert name == "kafka"
        return self

    def option(self, name, value):
        assert value
        return self

    def load(self):
        return self.spark.readStream.text(self.folder)


def run_example(code, names, folder):
    """Run an example, with its files in a folder."""
    for name in FILES:
        code = code.replace(f'"{name}"', repr(f"{folder}/{name}"))
    exec(compile(code, "docs/spark.md", "exec"), names)  # noqa: S102
    return names


def test_the_batch_key_and_pipeline_examples_run(spark, rows, tmp_path):
    batch, mixed, by_key, _, pipeline = EXAMPLES
    names = run_example(batch, {}, tmp_path)
    assert names["model"].forest_.n_points == 600
    assert spark.read.parquet(f"{tmp_path}/anomalies").columns == [
        *rows.columns,
        "anomaly_score",
        "surprise",
        "is_anomaly",
        "explanation",
    ]
    run_example(mixed, names, tmp_path)
    assert names["odd"].where("explanation_text LIKE '%country = KP (1 in 600)%'").count() == 1
    run_example(by_key, names, tmp_path)
    assert names["scored"].where("anomaly_score IS NULL").count() == 0
    run_example(pipeline, names, tmp_path)
    assert all((tmp_path / name).exists() for name in FILES)


def test_the_stream_example_runs(spark, rows, tmp_path):
    messages = rows.select(
        F.col("id").cast("string"), "machine", F.timestamp_seconds(F.col("id") + 1_700_000_000).alias("time"), "x", "y"
    )
    messages.select(F.to_json(F.struct("*")).alias("value")).write.text(f"{tmp_path}/messages")
    code = EXAMPLES[3].split("query = (")[0]
    watched = run_example(code, {"spark": WithoutKafka(spark, f"{tmp_path}/messages")}, tmp_path)["watched"]
    sink = watched.select(F.to_json(F.struct("*")).alias("value")).writeStream.format("text").outputMode("append")
    sink = sink.option("path", f"{tmp_path}/out").option("checkpointLocation", f"{tmp_path}/checkpoint")
    sink.trigger(availableNow=True).start().awaitTermination(120)
    assert spark.read.text(f"{tmp_path}/out").where('value LIKE \'%"anomaly_score":0.%"surprise":%\'').count() == 600
