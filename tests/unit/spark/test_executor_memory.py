"""Reading rows in a task of Spark exempts modules from garbage collections, and nowhere else."""

from __future__ import annotations

import msgspec
import pytest
from pyspark import TaskContext

from bucketq.spark import executor_memory
from bucketq.spark.queue_access import QueueAccess
from bucketq.spark.table.job_schema import JobPartition, read_job_partition
from tests.unit.spark.table.test_job_partition import record


@pytest.mark.parametrize("context", [object(), None], ids=["task", "driver"])
def test_modules_are_exempt_in_a_task(
    context: object | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[str] = []
    monkeypatch.setattr(executor_memory, "freeze_modules", lambda: frozen.append("modules"))
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    jobs = JobPartition.of_lines([msgspec.json.encode(record(1))])
    [batch] = read_job_partition(jobs, QueueAccess("file:///q.json"), 0)
    assert batch.num_rows == 1
    assert frozen == (["modules"] if context else [])
