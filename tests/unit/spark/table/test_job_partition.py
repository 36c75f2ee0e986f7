"""Jobs on their way to the executors: what goes in comes out."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pyspark.sql.datasource import InputPartition

from bucketq.model.records import JobRecord
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.stream.stream_reader import split
from bucketq.spark.table import job_schema
from bucketq.spark.table.job_schema import JobPartition, cut_lines, read_job_partition


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


def test_lines_are_decoded() -> None:
    jobs = [record(1), record(2)]
    assert payloads(JobPartition.of_lines([msgspec.json.encode(job) for job in jobs])) == ["1", "2"]
    assert payloads(JobPartition.of_lines([])) == []


@given(st.lists(st.integers(0, 30), max_size=30))
def test_no_task_carries_too_much_and_no_job_is_left_out(sizes: list[int]) -> None:
    lines = [bytes([place]) * size for place, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_schema, "TASK_BYTES", 20)
        cuts = [*cut_lines(lines)]
    assert [line for some in cuts for line in some] == lines
    assert all(sum(map(len, some)) <= 20 or len(some) == 1 for some in cuts)
    assert all(cuts) or not lines
    together = [sum(map(len, one)) + len(two[0]) for one, two in pairwise(cuts)]
    assert all(size > 20 for size in together), "a task has room for the first job of the next"


def test_a_micro_batch_of_large_jobs_has_more_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [msgspec.json.encode(record(number)) for number in range(10)]
    assert len(split(lines, 2)) == 2
    monkeypatch.setattr(job_schema, "TASK_BYTES", 300)
    parts = split(lines, 2)
    assert len(parts) > 2
    assert [each for part in parts for each in payloads(part)] == [str(n) for n in range(10)]


def test_a_field_of_a_newer_bucketq_is_left_out() -> None:
    line = msgspec.json.encode(record(1))
    newer = line[:-1] + b',"colour":"red"}'
    assert payloads(JobPartition.of_lines([newer, line])) == ["1", "1"]


def test_a_line_that_is_not_a_job_is_rejected() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field"):
        payloads(JobPartition.of_lines([b'{"id":"1"}']))
