"""Batches of a stream that pushes: each takes effect once, and is refused whole or not at all."""

from __future__ import annotations

import re
from array import array
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType
from typer.testing import CliRunner

import bucketq
from bucketq import InvalidRequestError, Job
from bucketq.cli.app import app
from bucketq.codec.decode import decode
from bucketq.errors import RejectedError
from bucketq.model.state import State
from bucketq.spark.data_source import BucketQDataSource
from bucketq.spark.stream import stream_writer
from bucketq.spark.stream.stream_writer import JobStreamWriter
from bucketq.spark.table import bulk_rows
from bucketq.spark.table.bulk_rows import BulkRows
from bucketq.spark.table.row_encoding import encode_rows
from bucketq.spark.table.staging import Parcel, StagedRows

SCHEMA = StructType([StructField("payload", StringType())])
QUERY = "2f1c9f2e-3a38-4a52-9f0e-0c8d0f3f6a11"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def opened(url: str) -> JobStreamWriter:
    options = {"path": url, "kind": "x", "checkpointLocation": "/tmp/c"}
    return BucketQDataSource(options).streamWriter(SCHEMA, overwrite=False)


def staged(writer: JobStreamWriter, batch: int, partition: int, *payloads: str) -> StagedRows:
    """The message of a task."""
    rows = pa.RecordBatch.from_pydict({"payload": list(payloads)})
    stager = writer._stager
    source = f"{QUERY}/{batch}"
    encoded = encode_rows([rows], stager.columns, stager.settings, source, partition)
    return StagedRows(partition, encoded.sizes, Parcel(encoded.body), QUERY)


def payloads(url: str) -> list[object]:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return [Job(each, Any).payload for each in queue.snapshot().jobs]


def test_a_repeated_batch_is_pushed_once(url: str) -> None:
    writer = opened(url)
    writer.commit([staged(writer, 0, 1, "3"), None, staged(writer, 0, 0, "1", "2")], 0)
    again = opened(url)
    again.commit([staged(again, 0, 0, "3", "1", "2")], 0)
    again.commit([staged(again, 1, 0, "4")], 1)
    again.commit([staged(again, 1, 0, "4")], 1)
    assert payloads(url) == [1, 2, 3, 4]


def test_a_batch_without_rows_makes_no_commit(url: str) -> None:
    writer = opened(url)
    before = Path(url.removeprefix("file://")).read_bytes()
    writer.commit([], 0)
    writer.commit([StagedRows(0, array("I"), Parcel(b""), QUERY)], 1)
    assert Path(url.removeprefix("file://")).read_bytes() == before


def test_the_hint_for_a_batch_that_is_too_large_helps(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(history_retention_s=60, max_batch_jobs=2, max_batch_bytes=2)
    writer = opened(url)
    rows = [staged(writer, 0, 0, "1", "2", "3")]
    with pytest.raises(
        RejectedError, match="nothing of batch 0 was pushed: it has 3 jobs"
    ) as caught:
        writer.commit(rows, 0)
    assert "the queue keeps a history" in str(caught.value)
    assert payloads(url) == []
    [command] = re.findall(r"`bucketq (.*?)`", str(caught.value))
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    opened(url).commit(rows, 0)
    assert payloads(url) == [1, 2, 3]


def test_a_batch_beyond_every_setting_is_pushed_without_what_hinders_it(url: str) -> None:
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(history_retention_s=60)
    task = Task(url)
    with pytest.raises(RejectedError, match="no setting allows that: remove the reason") as caught:
        task.writer.commit([task.write(0, 100_001)], 0)
    assert "the queue keeps a history (history_retention_s)" in str(caught.value)
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(history_retention_s=0)
    again = Task(url)
    again.writer.commit([again.write(0, 100_001)], 0)
    assert count(url) == 100_001


class Task:
    """A writer, and tasks of it with many rows."""

    def __init__(self, url: str) -> None:
        self.writer = opened(url)

    def write(self, batch: int, rows: int, partition: int = 0) -> WriterCommitMessage:
        """Write rows as a task of a micro-batch."""
        context = SimpleNamespace(
            partitionId=lambda: partition,
            taskAttemptId=lambda: 0,
            getLocalProperty=lambda name: QUERY if name.endswith("queryId") else str(batch),
        )
        texts = pa.RecordBatch.from_arrays([pa.array(range(rows)).cast(pa.string())], ["payload"])
        with pytest.MonkeyPatch.context() as patch:
            for module in (stream_writer, bulk_rows):
                patch.setattr(module, "task_context", lambda: context)
            return self.writer.write(iter([texts]))


def count(url: str) -> int:
    with bucketq.connect_sync(url, mode="direct") as queue:
        return queue.stats().total("queued")


def head(url: str) -> State:
    return decode(Path(url.removeprefix("file://")).read_bytes(), url).state


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20], ids=["put by tasks", "by the driver"])
def test_a_batch_of_any_size_is_one_commit_and_pushed_once(
    url: str, monkeypatch: pytest.MonkeyPatch, inline_bytes: int
) -> None:
    opened(url)
    monkeypatch.setattr(stream_writer, "BulkRows", partial(BulkRows, inline_bytes=inline_bytes))
    for _ in range(2):
        # Spark makes a writer for the tasks of a query, and another one for each commit.
        tasks = [Task(url).write(0, 8_000, partition) for partition in range(2)]
        opened(url).commit(tasks, 0)
        assert count(url) == 16_000
    state = head(url)
    assert state.version == 3, "created, reserved, adopted"
    assert len(state.reservations) == len(state.jobs) == 0
    opened(url).commit([Task(url).write(1, 3)], 1)
    assert count(url) == 16_003


def test_a_reservation_that_a_task_has_left_does_not_hinder_later_batches(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_writer, "BulkRows", partial(BulkRows, inline_bytes=0))
    opened(url)
    given_up = [Task(url).write(0, 10)]
    opened(url).abort(given_up, 0)
    assert len(head(url).reservations) == 0
    Task(url).write(0, 10)  # A task that Spark did not stop.
    assert len(head(url).reservations) == 1
    with monkeypatch.context() as patch:
        patch.setattr(stream_writer, "BulkRows", BulkRows)
        opened(url).commit([Task(url).write(0, 10)], 0)  # Few rows, which need no reservation.
    assert (count(url), len(head(url).reservations)) == (10, 1)
    opened(url).commit([Task(url).write(1, 20)], 1)
    assert (count(url), len(head(url).reservations)) == (30, 0)


def test_a_queue_is_not_overwritten(url: str) -> None:
    source = BucketQDataSource({"path": url, "kind": "x"})
    for open_writer in (source.streamWriter, source.writer):
        with pytest.raises(InvalidRequestError, match="a queue is not overwritten"):
            open_writer(SCHEMA, overwrite=True)
