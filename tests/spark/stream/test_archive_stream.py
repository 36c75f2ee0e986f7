"""Finished jobs as a stream on Spark: each once, across restarts and compactions."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import bucketq
import bucketq.spark
from tests.chaos.fleet import wait_until
from tests.spark.finished_jobs import archive, finished, hours_ago


def test_a_stream_has_every_finished_job_once_while_they_are_compacted(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with bucketq.connect_sync(url, mode="direct"):
        pass
    jobs = [finished(f"job{place:02d}", hours_ago(3 + place % 4)) for place in range(12)]
    archive(url, jobs[:8], jobs[4:])
    found = list[tuple[int, str]]()

    def keep(frame: DataFrame, number: int) -> None:
        found.extend((number, row.id) for row in frame.select("id").collect())

    def run() -> list[str]:
        source = spark.readStream.format("bucketq").option("table", "archive")
        stream = source.options(maxHoursPerTrigger=3, settleSeconds=0.1).load(url)
        query = stream.writeStream.foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
        return sorted(name for _, name in found)

    assert run() == sorted(job.id for job in jobs)
    assert len({number for number, _ in found}) == 2
    bucketq.spark.compact(spark, url)
    with bucketq.connect_sync(url, mode="direct") as queue:
        new = queue.push("mail", 1)
        for job in queue.claim():
            queue.complete(job)
        queue.flush_archive()
    wait_until(lambda: len(run()) > len(jobs), 60, "until the new job has come")
    assert run() == sorted([*(job.id for job in jobs), new])
