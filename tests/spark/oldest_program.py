"""Reads and writes with the oldest Spark; ``test_oldest_spark`` starts it with its own Python.

It prints a line of JSON with what it found. It uses nothing of the other tests, because that Python
has none of their packages.
"""

from __future__ import annotations

import json
import sys

import pyspark
from pyspark.sql import SparkSession

import bucketq
import bucketq.spark

ROWS = 20_000


def stream_error(spark: SparkSession, url: str) -> str:
    """Return why a stream cannot be read."""
    jobs = spark.readStream.format("bucketq").option("consumer", "c").load(url)
    target = jobs.writeStream.format("noop").option("checkpointLocation", f"{url}-checkpoint")
    try:
        target.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:  # noqa: BLE001 - Spark has many
        return str(error)
    return ""


def main(url: str) -> None:
    """Write in bulk and with messages, read the queue and its archive, and try a stream."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    bucketq.spark.register(spark)
    many = spark.range(ROWS).selectExpr("'many' AS kind", "struct(id) AS payload")
    few = spark.range(3).selectExpr("'few' AS kind", "cast(id AS string) AS payload")
    for frame in (many, few):
        frame.write.format("bucketq").mode("append").save(url)
    table = spark.read.format("bucketq").load(url)
    counts = {row["kind"]: row["count"] for row in table.groupBy("kind").count().collect()}
    with bucketq.connect_sync(url) as queue:
        for job in queue.claim("few", limit=3):
            queue.complete(job, job.payload)
        queue.flush_archive()
    archive = spark.read.format("bucketq").option("table", "archive").option("from", "2026-01-01")
    results = sorted(row["result"] for row in archive.load(url).select("result").collect())
    found = {
        "version": pyspark.__version__,
        "counts": counts,
        "payloads": table.where("kind = 'many'").select("payload").distinct().count(),
        "results": results,
        "stream": stream_error(spark, url),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
