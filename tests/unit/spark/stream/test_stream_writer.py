"""Batches of a stream that pushes: each takes effect once, and is refused whole or not at all."""

from __future__ import annotations

from array import array
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import bucketq
from bucketq import BucketQError, InvalidRequestError
from bucketq.spark.data_source import BucketQDataSource
from bucketq.spark.stream.stream_writer import JobStreamWriter
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
        return [job.payload for job in queue.jobs().jobs]


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


def test_a_batch_that_is_too_large_is_rejected_whole(url: str) -> None:
    writer = opened(url)
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(max_batch_jobs=2)
    with pytest.raises(
        BucketQError, match="nothing of batch 0 was pushed: it has 3 jobs"
    ) as caught:
        writer.commit([staged(writer, 0, 0, "1", "2", "3")], 0)
    assert "maxJobsPerTrigger" in str(caught.value)
    with bucketq.connect_sync(url, mode="direct") as queue:
        assert queue.stats().total("queued") == 0


def test_a_queue_is_not_overwritten(url: str) -> None:
    source = BucketQDataSource({"path": url, "kind": "x"})
    for open_writer in (source.streamWriter, source.writer):
        with pytest.raises(InvalidRequestError, match="a queue is not overwritten"):
            open_writer(SCHEMA, overwrite=True)
