"""The past of a queue on Spark: changes as a table and as a stream, and jobs as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import bucketq


def test_changes_in_batch_and_as_a_stream_and_jobs_at_a_version(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(history_retention_s=3600, spill_bytes=800)
        for number in range(12):
            queue.push("mail", {"number": number}, id=f"job-{number}")
        (job,) = queue.claim()
        queue.complete(job)
        expected = [change.version for change in queue.changes(follow=False)]
    load = spark.read.format("bucketq").option("table", "changes").load
    changes = load(url)
    versions = [row.version for row in changes.select("version").orderBy("version").collect()]
    assert versions[: len(expected)] == expected
    pushed = changes.select(f.explode("jobs").alias("job")).where("job.is_new").select("job.id")
    assert {row.id for row in pushed.collect()} == {f"job-{number}" for number in range(12)}

    third = changes.where(f.array_contains("requests.verb", "push")).orderBy("version").collect()[2]
    past = spark.read.format("bucketq").option("version", third.version).load(url)
    assert {row.id for row in past.collect()} == {"job-0", "job-1", "job-2"}

    seen: list[int] = []

    def keep(frame: DataFrame, _batch: int) -> None:
        seen.extend(row.version for row in frame.select("version").collect())

    def follow() -> None:
        stream: Any = spark.readStream.format("bucketq").option("table", "changes")
        stream = stream.option("maxVersionsPerTrigger", 10).load(url).writeStream
        checkpoint = str(tmp_path / "checkpoint")
        query = stream.foreachBatch(keep).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()

    follow()
    assert sorted(seen)[: len(expected)] == expected
    with bucketq.connect_sync(url, mode="direct") as queue:
        last = queue.push("mail", 0)
    follow()
    assert sorted(seen) == [*range(expected[0], expected[0] + len(seen))], "every version once"
    newest = load(url).where(f"version > {max(expected)}").select(f.explode("jobs.id").alias("id"))
    assert last in {row.id for row in newest.collect()}
