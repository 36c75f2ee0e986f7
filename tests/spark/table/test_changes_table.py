"""The past of a queue on Spark: changes as a table and as a stream, and jobs as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import bucketq
from tests.chaos.fleet import fleet, wait_until


class Followed:
    """The versions and the new jobs that a stream of changes has brought, in its batches."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: Path, **options: Any) -> None:
        self._spark, self._url, self._options = spark, url, options
        self._checkpoint = str(checkpoint)
        self.versions: list[int] = []
        self.pushed: list[str] = []

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query, or resume it."""
        source = self._spark.readStream.format("bucketq").option("table", "changes")
        stream = source.options(**self._options).load(self._url).writeStream
        query = stream.foreachBatch(self._keep).option("checkpointLocation", self._checkpoint)
        return query.trigger(**trigger).start()

    def run(self) -> None:
        """Read the versions that there are."""
        self.start(availableNow=True).awaitTermination()

    def _keep(self, frame: DataFrame, _batch: int) -> None:
        for row in frame.select("version", "jobs").collect():
            self.versions.append(row.version)
            self.pushed += [job.id for job in row.jobs if job.is_new]


def in_order(versions: list[int]) -> list[int]:
    """As many versions as were given, from the first of them on, without a hole."""
    return [*range(min(versions), min(versions) + len(versions))]


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

    followed = Followed(spark, url, tmp_path / "checkpoint", maxVersionsPerTrigger=10)
    followed.run()
    assert sorted(followed.versions)[: len(expected)] == expected
    with bucketq.connect_sync(url, mode="direct") as queue:
        last = queue.push("mail", 0)
    followed.run()
    assert sorted(followed.versions) == in_order(followed.versions), "every version once"
    assert min(followed.versions) == expected[0]
    newest = load(url).where(f"version > {max(expected)}").select(f.explode("jobs.id").alias("id"))
    assert last in {row.id for row in newest.collect()}


@pytest.mark.full  # `integration/test_feed` kills brokers below a feed in every run.
def test_a_stream_has_every_version_once_while_brokers_are_killed(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(history_retention_s=3600, spill_bytes=4000)
    followed = Followed(spark, url, tmp_path / "checkpoint", maxVersionsPerTrigger=20)
    pushed = list[str]()
    with fleet(tmp_path) as processes:
        brokers = [processes.serve(url) for _ in range(3)]
        with bucketq.connect_sync(url, mode="remote", timeout_s=60) as client:
            query = followed.start(processingTime="0 seconds")
            try:
                while brokers:
                    pushed += [client.push("mail", "x" * 100) for _ in range(40)]
                    if len(brokers) > 1:
                        leader = max(brokers, key=lambda broker: max(broker.epochs, default=0))
                        leader.kill()
                        brokers.remove(leader)
                    else:
                        brokers.clear()
                wait_until(lambda: pushed[-1] in followed.pushed, 60, "until all have come")
            finally:
                query.stop()
    assert followed.pushed == pushed, "every job once, in the order of the commits"
    assert followed.versions == in_order(followed.versions)


def test_a_stream_that_is_too_late_says_so_or_continues_with_what_is_left(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(history_retention_s=3600)
        first = queue.push("mail", 1)
    strict = Followed(spark, url, tmp_path / "checkpoint")
    strict.run()
    assert strict.pushed == [first]
    with bucketq.connect_sync(url, mode="embedded") as queue:
        forgotten, left = queue.push("mail", 2), queue.push("mail", 3)
        queue.forget_history(queue.history_range().last)
        last = queue.push("mail", 4)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        strict.run()
    assert strict.pushed == [first]
    lenient = Followed(spark, url, tmp_path / "checkpoint", failOnDataLoss="false")
    lenient.run()
    lenient.run()
    assert set(lenient.pushed) <= {left, last}
    assert lenient.pushed.count(last) == 1
    assert forgotten not in lenient.pushed
