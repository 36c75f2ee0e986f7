"""A query that is stopped gives up the micro-batch that it has prepared, by real processes."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import bucketq
from bucketq import JobSpec
from bucketq.spark.stream.micro_batches import _PREPARED_JOBS as SIZE
from tests.chaos.fleet import wait_until


def test_what_is_prepared_is_released_when_the_query_is_stopped(
    spark: SparkSession, file_url: str, tmp_path: Path
) -> None:
    release = tmp_path / "go"

    def hold(_frame: DataFrame, _batch: int) -> None:
        """Work on a batch until the query is stopped."""
        wait_until(release.exists, 60, "until the batch may end")

    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.push_many([JobSpec(kind="x", payload=number) for number in range(3 * SIZE)])
        source = spark.readStream.format("bucketq").option("consumer", "c")
        stream = source.option("maxJobsPerTrigger", SIZE).load(file_url).writeStream
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = query.foreachBatch(hold).start()

        def prepared() -> int:
            return sum(each.prepared for each in queue.consumers())

        try:
            wait_until(lambda: prepared() == SIZE, 60, "until the next batch is prepared")
        finally:
            running.stop()
            release.touch()
        wait_until(lambda: not prepared(), 60, "until it is released")
        assert queue.stats().counts == {"x": {"running": SIZE, "queued": 2 * SIZE}}
        waiting = [job for job in queue.jobs(statuses="queued", limit=SIZE).jobs if job.attempt]
        assert waiting, "some were reserved"
        assert {(job.lost_leases, job.failures) for job in waiting} == {(0, 0)}
