"""One Spark session for all tests, with real worker processes; failed tasks are retried, as on a cluster."""

import os
import shutil
import sys

import numpy as np
import pytest

FEATURES = ["a", "b", "c"]


def why_missing():
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError:
        return "pyspark is not installed"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java: apt-get install openjdk-17-jre-headless"
    return None


def pytest_collection_modifyitems(items):
    reason = why_missing()
    if reason is not None and os.environ.get("IMONDRIAN_SPARK") == "required":
        raise pytest.UsageError(f"Spark is required, but {reason}")
    for item in items:
        if "tests/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("default"))  # Spark's own warnings are not errors
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


def new_session(folder, master="local[2,4]"):
    """Start a session with up to four attempts per task."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # tests are many small queries
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",  # keeps several partitions to merge
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    builder = SparkSession.builder.master(master).appName("imondrian")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    session = new_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def points():
    """Points with copies: a tenth of the rows are equal."""
    X = np.round(np.random.default_rng(0).normal(size=(3000, 3)), 2)
    X[::10] = [0.25, -1.5, 0.0]
    return X


@pytest.fixture(scope="session")
def frame(spark, points):
    """The points with an id, a key and a text column."""
    rows = [(i, i % 7, f"row {i}", *map(float, x)) for i, x in enumerate(points)]
    return spark.createDataFrame(rows, "id long, key int, name string, a double, b double, c double").cache()


def scores_of(frame, column="anomaly_score", by="id"):
    """Collect a column in the order of another."""
    return np.array([row[0] for row in frame.orderBy(by).select(column).collect()], dtype=object)
