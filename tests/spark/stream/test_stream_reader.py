"""A queue as a stream: every job once, in batches that stay the same if they are done again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import bucketq
import bucketq.spark
from bucketq import JobId, JobSpec
from bucketq.model.records import Status
from tests.contract.brokers import NAME, Brokers

DEADLINE_S = 150.0
"""Generous, for a machine that does much else."""


class Log:
    """What a query did: the ids of each batch, in order."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, _: int) -> None:
        self.batches.append([row.id for row in sorted(frame.select("seq", "id").collect())])
        if self.error is not None:
            raise self.error

    @property
    def ids(self) -> list[str]:
        return [job for batch in self.batches for job in batch]


class Streams:
    """Starts queries, and stops those that a test leaves."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark = spark
        self.checkpoint = checkpoint

    def frame(self, url: str, **options: Any) -> DataFrame:
        given = {"consumer": "c", **options}
        return self._spark.readStream.format("bucketq").options(**given).load(url)

    def start(
        self,
        url: str,
        log: Callable[[DataFrame, int], None],
        trigger: dict[str, Any] | None = None,
        **options: Any,
    ) -> StreamingQuery:
        writer = self.frame(url, **options).writeStream.foreachBatch(log)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, url: str, log: Callable[[DataFrame, int], None], **given: Any) -> StreamingQuery:
        query = self.start(url, log, **given)
        assert query.awaitTermination(int(DEADLINE_S))
        return query

    def stop(self) -> None:
        for query in self._spark.streams.active:
            query.stop()


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    streams = Streams(spark, tmp_path / "checkpoint")
    yield streams
    streams.stop()


def push(url: str, count: int, kind: str = "index") -> list[JobId]:
    with bucketq.connect_sync(url, mode="direct") as queue:
        # So that done jobs can be counted.
        queue.configure(archive_after_s=3600, spill_bytes=16 << 20)
        return queue.push_many([JobSpec(kind=kind, payload={"n": n}) for n in range(count)])


def total(url: str, status: Status) -> int:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return queue.stats().total(status)


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def test_queued_jobs_are_taken_in_batches_and_acknowledged(
    url: str, streams: Streams, tmp_path: Path
) -> None:
    """Also if a task fails when it has read its jobs, and runs again."""
    failed = tmp_path / "failed"

    def fail_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if not failed.exists():
                failed.touch()
                message = "as it happens"
                raise ValueError(message)

    def note(frame: DataFrame, number: int) -> None:
        rows = frame.select("seq", "id")
        log(rows.mapInArrow(fail_once, rows.schema), number)

    pushed = push(url, 7)
    push(url, 2, kind="other")
    log = Log()
    streams.run(url, note, maxJobsPerTrigger=3, kind="index", minPartitions=2)
    assert failed.exists()
    assert [len(batch) for batch in log.batches] == [3, 3, 1]
    assert log.ids == pushed
    assert (total(url, "done"), total(url, "queued"), total(url, "running")) == (7, 2, 0)
    more = push(url, 1)
    streams.run(url, log, maxJobsPerTrigger=3, kind="index")
    assert log.ids == pushed + more


def test_a_running_stream_takes_new_jobs_at_once_and_reports_how_many_are_waiting(
    file_url: str, streams: Streams
) -> None:
    push(file_url, 3)
    log = Log()
    query = streams.start(
        file_url, log, trigger={"processingTime": "0 seconds"}, maxJobsPerTrigger=2
    )
    wait_for(lambda: total(file_url, "done") == 3)
    version = Path(file_url.removeprefix("file://")).read_bytes()
    time.sleep(1.0)  # Long enough for a hundred idle triggers.
    assert Path(file_url.removeprefix("file://")).read_bytes() == version
    push(file_url, 1)
    wait_for(lambda: len(log.ids) == 4)
    wait_for(lambda: total(file_url, "done") == 4)
    shown = [json.loads(each.sources[0].latestOffset) for each in query.recentProgress]
    assert shown[0] == {"consumer": "c", "batch": 1, "jobs": 2, "bytes": 14, "waiting": 1}
    query.stop()


def test_the_last_batch_of_a_single_trigger_is_acknowledged_by_finish(
    file_url: str, streams: Streams
) -> None:
    push(file_url, 5)
    log = Log()
    streams.run(file_url, log, trigger={"once": True}, maxJobsPerTrigger=2)
    assert [len(batch) for batch in log.batches] == [5]
    assert total(file_url, "running") == 5
    assert bucketq.spark.finish(file_url, "c", str(streams.checkpoint)) == 5
    assert total(file_url, "done") == 5
    streams.run(file_url, log)
    assert len(log.batches) == 1


def test_a_failed_batch_is_not_acknowledged_and_is_repeated_unchanged(
    file_url: str, streams: Streams
) -> None:
    """Also if its checkpoint is deleted."""
    pushed = push(file_url, 4)
    log = Log()
    log.error = ValueError("no luck")
    with pytest.raises(StreamingQueryException, match="no luck"):
        streams.run(file_url, log, maxJobsPerTrigger=3)
    assert total(file_url, "running") == 3
    with pytest.raises(bucketq.InvalidRequestError, match="batch 1 of consumer 'c' is not done"):
        bucketq.spark.finish(file_url, "c", str(streams.checkpoint))
    with pytest.raises(StreamingQueryException, match="no luck"):
        streams.run(file_url, log, maxJobsPerTrigger=1)
    shutil.rmtree(streams.checkpoint)
    log.error = None
    streams.run(file_url, log, maxJobsPerTrigger=2)
    assert log.batches == [pushed[:3], pushed[:3], pushed[:3], pushed[3:]]
    assert total(file_url, "done") == 4


def test_a_checkpoint_of_an_older_version_is_resumed(file_url: str, streams: Streams) -> None:
    """It has committed batch 1, and planned batch 2, which is open in the queue."""
    pushed = push(file_url, 5)
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        epoch = queue.open_consumer("c").epoch
        for batch in (1, 2):
            queue.claim_batch("c", epoch, batch, limit=2, lease_s=600)
            if batch == 1:
                queue.ack_batch("c", epoch, batch)
    shutil.copytree(Path(__file__).with_name("checkpoint-1"), streams.checkpoint)
    log = Log()
    streams.run(file_url, log)
    assert log.batches == [pushed[2:4], pushed[4:]]
    assert total(file_url, "done") == 5


def test_the_older_of_two_drivers_ends_with_a_clear_error(file_url: str, streams: Streams) -> None:
    push(file_url, 1)
    older = Log()
    query = streams.start(file_url, older, trigger={"processingTime": "0 seconds"})
    wait_for(lambda: total(file_url, "done") == 1)
    streams.checkpoint = streams.checkpoint.with_name("other")
    newer = Log()
    push(file_url, 2)
    streams.run(file_url, newer)
    with pytest.raises(StreamingQueryException, match="another driver has opened consumer 'c'"):
        query.awaitTermination(int(DEADLINE_S))
    assert len(set(older.ids + newer.ids)) == 3
    assert total(file_url, "done") == 3


def test_lost_claims_end_a_stream_unless_the_option_allows_them(
    file_url: str, streams: Streams
) -> None:
    pushed = push(file_url, 3)
    log = Log()
    log.error = ValueError("no luck")
    with bucketq.connect_sync(file_url, mode="direct") as queue:
        queue.configure(clock_margin_s=0, grace_s=0)
        with pytest.raises(StreamingQueryException):
            streams.run(file_url, log, leaseSeconds=0.2)
        [taken] = queue.claim(wait_s=DEADLINE_S)
        log.error = None
        with pytest.raises(StreamingQueryException, match="1 of 3 jobs of batch 1 are lost"):
            streams.run(file_url, log)
        streams.run(file_url, log, failOnLostClaim="false")
        assert log.batches[1:] == [[job for job in pushed if job != taken.id]]
        queue.complete(taken)
    assert total(file_url, "done") == 3


def test_a_stream_goes_through_a_broker_without_the_bucket(file_url: str, streams: Streams) -> None:
    pushed = push(file_url, 3)
    brokers = Brokers()
    try:
        address = f"bucketq://{brokers.serve(file_url)}/{NAME}"
        with bucketq.connect_sync(address) as queue:
            token = queue.create_token("stream", ["claim", "read"])
        log = Log()
        streams.run(address, log, token=token, maxJobsPerTrigger=2)
        assert log.batches == [pushed[:2], pushed[2:]]
        streams.checkpoint = streams.checkpoint.with_name("other")
        with pytest.raises(StreamingQueryException, match="AccessDeniedError"):
            streams.run(address, log, consumer="d", timeoutSeconds=5)
    finally:
        brokers.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumer": ""}, "the option consumer is missing"),
        ({"maxJobsPerTrigger": "many"}, "option maxJobsPerTrigger: 'many'"),
        ({"startingOffsets": "latest"}, "unknown option 'startingoffsets': for streams"),
    ],
)
def test_a_wrong_option_is_named(
    file_url: str, streams: Streams, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        streams.frame(file_url, **options)


def test_a_missing_queue_is_not_created(file_url: str, streams: Streams) -> None:
    with pytest.raises(StreamingQueryException, match="QueueNotFoundError"):
        streams.run(file_url, Log())
    assert not Path(file_url.removeprefix("file://")).exists()


def test_executors_fetch_large_payloads_and_a_repeated_batch_is_the_same(
    url: str, streams: Streams
) -> None:
    contents = [bytes(range(256)) * 5_000, bytes(100_000)]
    with bucketq.connect_sync(url, mode="direct") as queue:
        for content in contents:
            queue.push("film", content)
    seen: list[list[bytes]] = []

    def note(frame: DataFrame, _: int) -> None:
        rows = frame.orderBy("seq").select("payload_bytes", "payload_ref").collect()
        seen.append([bytes(row.payload_bytes) for row in rows if row.payload_ref is None])
        if len(seen) == 1:
            message = "as it happens"
            raise ValueError(message)

    with pytest.raises(StreamingQueryException, match="as it happens"):
        streams.run(url, note)
    streams.run(url, note)
    assert seen == [contents, contents]
