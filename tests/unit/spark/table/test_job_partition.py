"""Jobs on their way to the executors: what goes in comes out."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from pyspark.sql.datasource import InputPartition

from bucketq.model.records import JobRecord
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.table.job_schema import JobPartition, read_job_partition


def record(number: int) -> JobRecord:
    return JobRecord(
        id=f"job-{number}",
        kind="index",
        status="queued",
        seq=number,
        payload=Raw(b"%d" % number),
        pushed_at=datetime(2026, 11, 15, tzinfo=UTC),
    )


def payloads(part: InputPartition) -> list[Any]:
    travelled = pickle.loads(pickle.dumps(part))
    batches = read_job_partition(travelled, QueueAccess("file:///nowhere/queue.json"), 1 << 20)
    return [row["payload"] for batch in batches for row in batch.to_pylist()]


def test_jobs_and_their_lines_are_decoded_alike() -> None:
    jobs = [record(1), record(2)]
    assert payloads(JobPartition.of(jobs)) == ["1", "2"]
    assert payloads(JobPartition.of_lines([msgspec.json.encode(job) for job in jobs])) == ["1", "2"]
    assert payloads(JobPartition.of([])) == payloads(JobPartition.of_lines([])) == []


def test_a_field_of_a_newer_bucketq_is_left_out() -> None:
    line = msgspec.json.encode(record(1))
    newer = line[:-1] + b',"colour":"red"}'
    assert payloads(JobPartition.of_lines([newer, line])) == ["1", "1"]


def test_a_line_that_is_not_a_job_is_rejected() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        payloads(JobPartition.of_lines([b'{"id":"1"}']))
