"""A streaming query in a separate process, to be killed: python -m tests.spark.streams FOLDER [endless].

Unless it is endless, it ends when all files have been processed. Batches cannot be counted instead: after a kill, Spark
may process two files as one batch.
"""

import sys

from imondrian.spark import watch
from tests.spark.conftest import FEATURES, new_session

SCHEMA = "id long, key int, time timestamp, a double, b double, c double"
MIXED_SCHEMA = f"{SCHEMA}, country string, paid boolean"
MIXED_FEATURES = [*FEATURES, "country", "paid"]
OPTIONS = {"window": 64, "max_samples": 16, "n_trees": 8, "warm_up": 10, "threshold": "kmeans", "time": "time"}


def started(spark, folder):
    """Start the query, which scores the files of a folder one by one into another folder."""
    stream = spark.readStream.schema(MIXED_SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in/*.parquet")
    writer = watch(stream, "key", MIXED_FEATURES, **OPTIONS).writeStream.format("parquet").outputMode("append")
    writer = writer.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    return writer.start()


def main(folder, *, is_endless):
    query = started(new_session(folder), folder)
    if is_endless:
        query.awaitTermination()
    query.processAllAvailable()  # raises the error of a query that has failed
    query.stop()


if __name__ == "__main__":
    main(sys.argv[1], is_endless=sys.argv[2:] == ["endless"])
