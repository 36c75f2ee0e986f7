"""Batches have tags, outcomes come in order, and errors take one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model.records import JobRecord
from bucketq.spark.handlers.batch_runner import BatchFailed
from bucketq.spark.handlers.executor_task import TaskSettings
from bucketq.spark.handlers.pickled_handlers import PickledHandlers, pickle_handlers
from bucketq.spark.handlers.spark_cluster import SparkCluster
from bucketq.worker.handlers import bind
from bucketq.worker.runners.reply import value_of
from tests.unit.worker.engine_harness import claimed_job

JAVA = """An error occurred while calling o172.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: python worker exited
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
"""


class FakeContext:
    """What is used of a SparkContext."""

    def __init__(self) -> None:
        self.defaultParallelism = 3
        self.master = "local[3]"
        self.pythonExec = "python3"
        self.tags: list[str] = []
        self.error: Exception | None = None
        self.log: list[str] = []

    def getConf(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(contains=lambda _: False)

    def addJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802 - Spark's name
        if self.error is not None:
            raise self.error
        self.log.append(f"cancel {tag}")


class FakeFrame:
    """A table whose rows come back in another order."""

    def __init__(self, session: FakeSession, table: pa.Table) -> None:
        self._session = session
        self._table = table

    def mapInArrow(self, run: Callable[..., Iterator[pa.RecordBatch]], _: str) -> FakeFrame:  # noqa: N802 - Spark's name
        batches = list(run(self._table.to_batches()))
        return FakeFrame(self._session, pa.Table.from_batches(batches))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self._session.seen.append(list(self._session.sparkContext.tags))
        if self._session.error is not None:
            raise self._session.error
        return self._table.take(list(reversed(range(self._table.num_rows))))


class FakeSession:
    """What is used of a session."""

    def __init__(self) -> None:
        self.sparkContext = FakeContext()
        self.settings: dict[str, str] = {}
        self.conf = SimpleNamespace(get=self.settings.get)
        self.seen: list[list[str]] = []
        self.rows: list[int] = []
        self.error: Exception | None = None

    def createDataFrame(self, table: pa.Table) -> FakeFrame:  # noqa: N802 - Spark's name
        self.rows.append(table.num_rows)
        return FakeFrame(self, table)


def double(number: int) -> int:
    return 2 * number


def record(number: int) -> JobRecord:
    return claimed_job(number, kind="x").record


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


@pytest.fixture
def cluster(session: FakeSession) -> SparkCluster:
    return cluster_of(session, pickle_handlers({"x": bind("x", double)}))


def cluster_of(session: Any, pickled: PickledHandlers) -> SparkCluster:
    return SparkCluster(session, TaskSettings(pickled, 2, 5.0))


def test_outcomes_are_in_the_order_of_the_jobs_and_the_batch_has_its_tag(
    session: FakeSession, cluster: SparkCluster
) -> None:
    outcomes = cluster.submit([record(n) for n in range(5)], "shared", "t1")
    assert [value_of(each.reply) for each in outcomes if each.reply] == [0, 2, 4, 6, 8]
    assert (session.seen, session.sparkContext.tags) == ([["t1"]], [])
    cluster.interrupt("t1")
    assert session.sparkContext.log == ["cancel t1"]


@pytest.mark.parametrize(("jobs", "rows"), [(3, 3), (48, 24), (47, 47), (2000, 63)])
def test_a_row_has_several_jobs_if_each_task_gets_enough_rows(
    session: FakeSession, cluster: SparkCluster, jobs: int, rows: int
) -> None:
    outcomes = cluster.submit([record(n) for n in range(jobs)], "shared", "t1")
    found = [value_of(each.reply) for each in outcomes if each.reply]
    assert found == [2 * n for n in range(jobs)]
    assert session.rows == [rows]


def test_an_error_shows_the_reason_without_the_java_stack(
    session: FakeSession, cluster: SparkCluster
) -> None:
    session.error = RuntimeError(JAVA)
    with pytest.raises(BatchFailed) as caught:
        cluster.submit([record(1)], "shared", "t1")
    assert str(caught.value) == (
        "org.apache.spark.SparkException: Job aborted due to stage failure: python worker exited"
    )
    assert session.sparkContext.tags == []
    session.sparkContext.error = session.error
    for ask in (cluster.check, lambda: cluster.interrupt("t1")):
        with pytest.raises(
            UnavailableError, match=r"cannot run jobs any more: org.*exited; see its log"
        ):
            ask()


def test_executors_that_cannot_load_handlers_are_reported(session: FakeSession) -> None:
    broken = cluster_of(session, PickledHandlers(b"\x80\x04cno_such_module\nwork\n.", ()))
    for ask in (broken.check, lambda: broken.submit([record(1)], "shared", "t")):
        with pytest.raises(InvalidRequestError, match="No module named 'no_such_module'"):
            ask()


def test_a_working_cluster_passes_the_check(cluster: SparkCluster) -> None:
    cluster.check()
    assert cluster.parallelism == 3


def test_speculation_is_detected(session: FakeSession, cluster: SparkCluster) -> None:
    assert not cluster.may_run_twice
    session.settings["spark.speculation"] = "true"
    assert cluster.may_run_twice
