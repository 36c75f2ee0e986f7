"""The tasks of a bulk write and its commit, called as Spark calls them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import bucketq
from bucketq.clock import SystemClock
from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.errors import RejectedError
from bucketq.model.operations import Request, Tidy
from bucketq.model.state import State
from bucketq.spark.format_options import write_options
from bucketq.spark.table import bulk_rows, job_writer
from bucketq.spark.table.bulk_rows import TaskRows
from bucketq.spark.table.bulk_writer import BulkJobWriter, new_writer
from bucketq.spark.table.job_writer import JobWriter
from bucketq.store.url import open_store

SCHEMA = StructType([StructField("kind", StringType()), StructField("payload", LongType())])
TASK_ROWS = 10


def batch_of(payloads: pa.Array) -> pa.RecordBatch:
    kinds = pa.array(["index"] * len(payloads))
    return pa.RecordBatch.from_arrays([kinds, payloads], names=["kind", "payload"])


class Tomorrow(SystemClock):
    """A clock that is far ahead."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=2)


class Write:
    """A write of two tasks, of which each has some rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with bucketq.connect_sync(path.as_uri(), mode="direct"):
            pass
        self.writer = self.begin()

    def begin(self) -> BulkJobWriter:
        """Plan the write, as the driver does."""
        options = {"path": self.path.as_uri(), "bulk": "true", "writeId": "once"}
        writer = new_writer(SCHEMA, write_options(options))
        assert isinstance(writer, BulkJobWriter)
        return writer

    def task(self, partition: int) -> TaskRows:
        """Write the rows of a task."""
        first = partition * TASK_ROWS
        payloads = pa.array(range(first, first + TASK_ROWS), pa.int64())

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch_of(payloads)

        with pytest.MonkeyPatch.context() as patch:
            context = SimpleNamespace(partitionId=lambda: partition)
            patch.setattr(bulk_rows, "task_context", lambda: context)
            return self.writer.write(batches())

    def expire(self) -> None:
        """Tidy the queue when its reservations are too old."""

        async def tidy() -> None:
            location = open_store(self.path.as_uri())
            clock = Tomorrow()
            register = Register(location.store, location.key, location.url, clock)
            committer = DirectCommitter(register, clock, timeout_s=60)
            await committer.open()
            await committer.submit(Request(Tidy()), 60)
            await committer.close()
            await location.store.close()

        asyncio.run(tidy())

    @property
    def head(self) -> State:
        """The queue as it is now."""
        return decode(self.path.read_bytes(), "queue").state

    @property
    def payloads(self) -> list[int]:
        """The payloads of all jobs."""
        with bucketq.connect_sync(self.path.as_uri(), mode="direct") as queue:
            return [bucketq.Job(each, int).payload for each in queue.snapshot().jobs]


@pytest.mark.parametrize("when", ["before the commit", "between tasks"])
def test_a_write_whose_reservation_expired_adds_nothing_and_can_be_repeated(
    tmp_path: Path, when: str
) -> None:
    write = Write(tmp_path / "queue.json")
    first = write.task(0)
    if when == "between tasks":
        write.expire()
    messages = [first, write.task(1)]
    if when == "before the commit":
        write.expire()
    with pytest.raises(RejectedError, match=r"nothing was pushed: .* expired while it ran"):
        write.writer.commit(messages)
    write.writer.abort(messages)  # As Spark does then.
    assert write.payloads == []
    assert len(write.head.reservations) == 0
    write.writer = write.begin()
    write.writer.commit([write.task(0), write.task(1)])
    assert write.payloads == [*range(2 * TASK_ROWS)]
    write.writer.commit([write.task(0), write.task(1)])
    assert len(write.payloads) == 2 * TASK_ROWS


def test_a_task_that_ends_after_the_commit_adds_nothing(tmp_path: Path) -> None:
    write = Write(tmp_path / "queue.json")
    write.writer.commit([write.task(0), write.task(1)])
    assert write.task(1).records == [], "the second copy of a slow task"
    assert len(write.head.reservations) == 0
    assert write.payloads == [*range(2 * TASK_ROWS)]


def test_a_task_that_begins_after_the_abort_adds_nothing(tmp_path: Path) -> None:
    write = Write(tmp_path / "queue.json")
    messages = [write.task(0)]
    write.writer.abort(messages)
    assert write.task(1).records != [], "it reserves again, because Spark does not stop it"
    assert write.payloads == []
    write.writer = write.begin()
    write.writer.commit([write.task(0), write.task(1)])
    assert write.payloads == [*range(2 * TASK_ROWS)]
    assert len(write.head.reservations) == 0


@pytest.mark.parametrize(
    "options", [{"bulk": "true"}, {}, {"bulk": "false"}, {"maxJobsPerCommit": "4"}]
)
def test_a_write_without_an_id_is_forgotten_when_its_answer_has_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(max_writers=2)
    context = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 0)
    for module in (bulk_rows, job_writer):
        monkeypatch.setattr(module, "task_context", lambda: context)

    def write(**more: str) -> None:
        writer = new_writer(SCHEMA, write_options({"path": url, **options, **more}))
        writer.commit([writer.write(iter([batch_of(pa.array(range(TASK_ROWS)))]))])

    for _ in range(4):
        write()
    write(writeId="mine")
    write(writeId="mine")
    state = decode((tmp_path / "queue.json").read_bytes(), "queue").state
    assert [row.id for row in state.writers] == ["mine"]
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert queue.stats().total("queued") == 5 * TASK_ROWS


MOST = 100
"""How many jobs go in one commit of a write that has to be split."""


class SplitWrite:
    """A write of one task to a queue with a history, which has to be split."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.url = path.as_uri()
        context = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 0)
        patch.setattr(job_writer, "task_context", lambda: context)
        patch.setattr(job_writer, "_COMMIT_JOBS", MOST)
        self.configure(history_retention_s=3600, max_batch_jobs=MOST)

    def configure(self, **settings: Any) -> None:
        with bucketq.connect_sync(self.url, mode="direct") as queue:
            queue.configure(**settings)

    def push(self, rows: int) -> None:
        """Write some rows, as Spark does it."""
        writer = new_writer(SCHEMA, write_options({"path": self.url, "writeId": f"of-{rows}"}))
        assert isinstance(writer, JobWriter)
        writer.commit([writer.write(iter([batch_of(pa.array(range(rows)))]))])

    def count(self) -> int:
        with bucketq.connect_sync(self.url, mode="direct") as queue:
            return len(queue.snapshot().jobs)


def test_a_write_that_needs_several_commits_logs_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = SplitWrite(tmp_path / "queue.json", monkeypatch)
    write.push(MOST)
    assert caplog.messages == []
    write.push(MOST + 1)
    reason = "the queue keeps a history (history_retention_s)"
    expected = f"{MOST + 1} jobs are pushed in 2 commits, and not in one: {reason}"
    assert [text[: len(expected)] for text in caplog.messages] == [expected]
    assert write.count() == 2 * MOST + 1


def test_a_split_write_is_resumed_as_it_was_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = SplitWrite(tmp_path / "queue.json", monkeypatch)
    write.configure(max_jobs=MOST)
    with pytest.raises(RejectedError, match=r"100 of 101 jobs were pushed: .* to resume"):
        write.push(MOST + 1)
    assert write.count() == MOST
    with bucketq.connect_sync(write.url, mode="direct") as queue:
        queue.complete_many(queue.claim(limit=MOST))
        queue.flush_archive()
    write.configure(max_batch_jobs=2 * MOST, history_retention_s=0)  # All would fit in one commit.
    write.push(MOST + 1)
    assert write.count() == 1, "jobs that are done are not pushed again"
