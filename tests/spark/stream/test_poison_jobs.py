"""A job on which a query always fails does not block its stream."""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import bucketq
from bucketq.spark import StreamBatch, for_each_batch

STARTS_MAX = 8
"""More than it takes: each failure ends the query."""


def test_a_poison_job_is_dead_in_the_end_and_the_others_have_one_effect(
    spark: SparkSession, file_url: str, tmp_path: Path
) -> None:
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(archive_after_s=3600)
        ids = [queue.push("x", name, max_attempts=1) for name in ("a", "poison", "b", "c")]
    effects: dict[int, list[str]] = {}
    numbers: list[int] = []

    def act(batch: StreamBatch) -> None:
        rows = batch.frame.orderBy("seq").select("id", "payload", "consumer_batch").collect()
        assert {row.consumer_batch for row in rows} <= {batch.number}
        numbers.append(batch.number)
        effects[batch.number] = [row.id for row in rows]
        if '"poison"' in [row.payload for row in rows]:
            message = "poison"
            raise ValueError(message)

    def run() -> bool:
        jobs = spark.readStream.format("bucketq").option("consumer", "c")
        stream = jobs.option("maxJobsPerTrigger", 3).option("maxBatchFailures", 1).load(file_url)
        writing = stream.writeStream.foreachBatch(for_each_batch(act, file_url, "c"))
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        try:
            writing.trigger(availableNow=True).start().awaitTermination()
        except StreamingQueryException:
            return False
        return True

    starts = next(number for number in range(1, STARTS_MAX) if run())
    assert starts == 3, "the batch fails, then the job alone"
    assert effects == {1: [], 2: [ids[0]], 3: [], 4: [ids[2]], 5: [ids[3]]}
    assert numbers == [1, 1, 2, 3, 3, 4, 5], "a batch keeps its number"
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        found = {job.id: (job.status, job.failures) for job in queue.snapshot().jobs}
    assert found.pop(ids[1]) == ("dead", 1)
    assert set(found.values()) == {("done", 0)}
