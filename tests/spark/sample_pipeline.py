"""A declarative pipeline that reads a queue and pushes to another."""

from __future__ import annotations

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
pages, index = os.environ["PAGES_URL"], os.environ["INDEX_URL"]
pipelines.create_sink(name="index", format="bucketq", options={"path": index, "kind": "index"})


@pipelines.append_flow(target="index", name="push")
def push() -> DataFrame:
    """Push what a stream claims."""
    source = spark.readStream.format("bucketq").option("consumer", "crawler")
    return source.load(pages).select("payload")


@pipelines.materialized_view
def kinds() -> DataFrame:
    """Count the jobs of each kind."""
    return spark.read.format("bucketq").load(pages).groupBy("kind").count()
