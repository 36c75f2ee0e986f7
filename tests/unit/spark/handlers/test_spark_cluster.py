"""Batches have tags, outcomes come in order, and errors take one line.

So it is with a session of this process, and with one over Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
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

PARALLELISM = 3


class FakeSpark:
    """What both sessions have: tags, and batches that run at once, or fail."""

    def __init__(self) -> None:
        self.tags: list[str] = []
        self.seen: list[list[str]] = []
        """The tags of each batch that was run."""
        self.error: Exception | None = None
        self.log: list[str] = []
        self.settings: dict[str, str] = {}
        self.conf = SimpleNamespace(get=self.settings.get)

    def run(self) -> None:
        self.seen.append(list(self.tags))
        if self.error is not None:
            raise self.error

    def cancel(self, tag: str) -> None:
        if self.error is not None:
            raise self.error
        self.log.append(f"cancel {tag}")


class FakeRdd:
    """Rows in partitions."""

    def __init__(self, spark: FakeSpark, parts: list[list[bytes]]) -> None:
        self._spark = spark
        self._parts = parts

    def mapPartitions(self, run: Callable[[Iterable[bytes]], Iterable[bytes]]) -> FakeRdd:  # noqa: N802 - Spark's name
        return FakeRdd(self._spark, [list(run(iter(part))) for part in self._parts])

    def collect(self) -> list[bytes]:
        self._spark.run()
        return [row for part in self._parts for row in part]


class FakeContext:
    """What is used of a SparkContext."""

    def __init__(self, spark: FakeSpark) -> None:
        self.defaultParallelism = PARALLELISM
        self.master = "local[3]"
        self.pythonExec = "python3"
        self.batches: list[list[int]] = []
        """How many jobs each task of a batch got."""
        self._spark = spark
        self.addJobTag = spark.tags.append
        self.removeJobTag = spark.tags.remove
        self.cancelJobsWithTag = spark.cancel

    def getConf(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(contains=lambda _: False)

    def parallelize(self, rows: list[bytes], slices: int) -> FakeRdd:
        assert len(rows) == slices
        self.batches.append([len(msgspec.json.decode(row)) for row in rows])
        return FakeRdd(self._spark, [[row] for row in rows])


class ClassicSession(FakeSpark):
    """What is used of a session of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.sparkContext = FakeContext(self)


class FakeFrame:
    """A table whose rows come back in another order."""

    def __init__(self, spark: FakeSpark, table: pa.Table) -> None:
        self._spark = spark
        self._table = table

    def mapInArrow(self, run: Callable[..., Iterator[pa.RecordBatch]], _: str) -> FakeFrame:  # noqa: N802 - Spark's name
        batches = list(run(self._table.to_batches()))
        return FakeFrame(self._spark, pa.Table.from_batches(batches))

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        self._spark.run()
        return self._table.take(list(reversed(range(self._table.num_rows))))

    def selectExpr(self, _: str) -> FakeFrame:  # noqa: N802 - Spark's name
        return self

    def collect(self) -> list[dict[str, int]]:
        return [{"partitions": PARALLELISM}]


class ConnectSession(FakeSpark):
    """What is used of a session over Spark Connect."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []
        self.addTag = self.tags.append
        self.removeTag = self.tags.remove
        self.interruptTag = self.cancel

    def createDataFrame(self, table: pa.Table) -> FakeFrame:  # noqa: N802 - Spark's name
        self.rows.append(table.num_rows)
        return FakeFrame(self, table)

    def range(self, count: int) -> FakeFrame:
        return FakeFrame(self, pa.table({"id": range(count)}))


def double(number: int) -> int:
    return 2 * number


def record(number: int) -> JobRecord:
    return claimed_job(number, kind="x").record


@pytest.fixture(params=[ClassicSession, ConnectSession])
def session(request: pytest.FixtureRequest) -> FakeSpark:
    made: FakeSpark = request.param()
    return made


@pytest.fixture
def cluster(session: FakeSpark) -> SparkCluster:
    return cluster_of(session, pickle_handlers({"x": bind("x", double)}))


def cluster_of(session: Any, pickled: PickledHandlers) -> SparkCluster:
    return SparkCluster(session, TaskSettings(pickled, 2, 5.0))


def test_outcomes_are_in_the_order_of_the_jobs_and_the_batch_has_its_tag(
    session: FakeSpark, cluster: SparkCluster
) -> None:
    outcomes = cluster.submit([record(n) for n in range(5)], "shared", "t1")
    assert [value_of(each.reply) for each in outcomes if each.reply] == [0, 2, 4, 6, 8]
    assert (session.seen, session.tags) == ([["t1"]], [])
    cluster.interrupt("t1")
    assert session.log == ["cancel t1"]


@pytest.mark.parametrize(("jobs", "rows"), [(3, 3), (48, 24), (47, 47), (2000, 63)])
def test_a_row_of_a_query_has_several_jobs_if_each_task_gets_enough_rows(
    jobs: int, rows: int
) -> None:
    session = ConnectSession()
    cluster = cluster_of(session, pickle_handlers({"x": bind("x", double)}))
    outcomes = cluster.submit([record(n) for n in range(jobs)], "shared", "t1")
    found = [value_of(each.reply) for each in outcomes if each.reply]
    assert found == [2 * n for n in range(jobs)]
    assert session.rows == [rows]


def test_tasks_get_as_many_jobs_as_each_other_also_on_executors_that_have_joined() -> None:
    session = ClassicSession()
    cluster = cluster_of(session, pickle_handlers({"x": bind("x", double)}))
    assert cluster.parallelism == PARALLELISM
    session.sparkContext.defaultParallelism = 5
    for jobs in (1003, 2):
        outcomes = cluster.submit([record(n) for n in range(jobs)], "shared", "t1")
        found = [value_of(each.reply) for each in outcomes if each.reply]
        assert found == [2 * n for n in range(jobs)]
    assert session.sparkContext.batches == [[200, 201, 200, 201, 201], [1, 1]]


def test_an_error_shows_the_reason_without_the_java_stack(
    session: FakeSpark, cluster: SparkCluster
) -> None:
    session.error = RuntimeError(JAVA)
    with pytest.raises(BatchFailed) as caught:
        cluster.submit([record(1)], "shared", "t1")
    assert str(caught.value) == (
        "org.apache.spark.SparkException: Job aborted due to stage failure: python worker exited"
    )
    assert session.tags == []
    for ask in (cluster.check, lambda: cluster.interrupt("t1")):
        with pytest.raises(
            UnavailableError, match=r"cannot run jobs any more: org.*exited; see its log"
        ):
            ask()


def test_executors_that_cannot_load_handlers_are_reported(session: FakeSpark) -> None:
    broken = cluster_of(session, PickledHandlers(b"\x80\x04cno_such_module\nwork\n.", ()))
    for ask in (broken.check, lambda: broken.submit([record(1)], "shared", "t")):
        with pytest.raises(InvalidRequestError, match="No module named 'no_such_module'"):
            ask()


def test_a_working_cluster_passes_the_check(cluster: SparkCluster) -> None:
    cluster.check()
    assert cluster.parallelism == PARALLELISM


def test_speculation_is_detected(session: FakeSpark, cluster: SparkCluster) -> None:
    assert not cluster.may_run_twice
    session.settings["spark.speculation"] = "true"
    assert cluster.may_run_twice
