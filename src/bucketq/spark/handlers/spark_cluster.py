"""``SparkCluster``: runs, cancels and checks batches of jobs on a Spark session.

The session is one of this process or one over Spark Connect. All calls block, and may be made from
several threads at once.

With a session of this process a batch is an RDD, which costs the driver's Java less than half of
what a query does. Spark Connect has queries only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, UnavailableError
from bucketq.model.records import JobRecord
from bucketq.spark.handlers.batch_runner import BatchFailed
from bucketq.spark.handlers.executor_task import (
    HandlerOutcome,
    Isolation,
    TaskSettings,
    run_batches,
    run_rows,
)
from bucketq.spark.session.compatibility import is_connect_session
from bucketq.spark.session.spark_errors import is_connection_lost, reason_of
from bucketq.spark.session.worker_python import describe_python_error

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ROWS = "n int, body binary"
_SCHEMA = pa.schema([("n", pa.int32()), ("body", pa.binary())])
_PARTITIONS_MAX = 4096
"""More cores than a cluster for handlers is expected to have."""
_REASON_LENGTH_MAX = 300
"""An error is stored with each job that it concerns, so it is kept short."""
_ROW_JOBS_MAX = 32
"""How many jobs go in one row of a query at most. Each costs Spark as much as a short handler."""
_ROWS_PER_TASK = 8
"""How many rows a task gets at least, if there are jobs for it: Spark deals out rows, evenly, also
to executors that have joined since the number of tasks was read."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[list[HandlerOutcome]]).decode


class SparkCluster:
    """A Spark session that runs handlers."""

    def __init__(self, spark: SparkSession, settings: TaskSettings) -> None:
        self._spark: Any = spark
        self._settings = settings
        self._context: Any = None if is_connect_session(spark) else self._spark.sparkContext

    @cached_property
    def parallelism(self) -> int:
        """How many partitions a batch has, which is how many tasks run at once."""
        if self._context is not None:
            return max(1, int(self._context.defaultParallelism))
        # Spark Connect has no call for that, but the server splits a range accordingly.
        ids = self._spark.range(_PARTITIONS_MAX).selectExpr("spark_partition_id() AS id")
        [row] = ids.selectExpr("max(id) + 1 AS partitions").collect()
        return int(row["partitions"])

    @property
    def may_run_twice(self) -> bool:
        """Whether Spark runs a second copy of a slow task (speculation)."""
        return str(self._spark.conf.get("spark.speculation", "false")).lower() == "true"

    def submit(
        self, jobs: Sequence[JobRecord], isolation: Isolation, tag: str
    ) -> list[HandlerOutcome]:
        """Run jobs, and return their outcomes in the same order.

        Raises ``BatchFailed``, or ``InvalidRequestError`` if an executor cannot load the handlers.
        """
        spark, context = self._spark, self._context
        add, remove = (
            (spark.addTag, spark.removeTag)
            if context is None
            else (context.addJobTag, context.removeJobTag)
        )
        add(tag)
        try:
            outcomes = self._run(jobs, isolation)
        except Exception as error:
            raise BatchFailed(_reason(error)) from error
        finally:
            remove(tag)
        _check_loaded(outcomes)
        return outcomes

    def interrupt(self, tag: str) -> None:
        """Cancel the batch with a tag, whose ``submit`` then raises.

        Raises ``UnavailableError`` if Spark is gone.
        """
        try:
            # interruptTag of a classic session knows only tags that its own thread has set.
            if self._context is not None:
                self._context.cancelJobsWithTag(tag)
            else:
                self._spark.interruptTag(tag)
        except Exception as error:
            raise _unavailable(error) from error

    def ping(self) -> None:
        """Raise ``UnavailableError`` if Spark is gone; this runs no Spark job."""
        try:
            self._spark.conf.get("spark.app.name", "")
        except Exception as error:
            raise _unavailable(error) from error

    def check(self) -> None:
        """Raise ``UnavailableError`` if Spark is gone.

        Raises ``InvalidRequestError`` if the executors cannot load the handlers.
        """
        try:
            outcomes = self._run([None], "shared")
        except Exception as error:
            if problem := describe_python_error(str(error)):
                raise InvalidRequestError(problem) from error
            raise _unavailable(error) from error
        _check_loaded(outcomes)

    def _run(self, jobs: Sequence[JobRecord | None], isolation: Isolation) -> list[HandlerOutcome]:
        settings = replace(self._settings, isolation=isolation)
        if self._context is not None:
            found = _run_in_rdd(self._context, partial(run_rows, settings), jobs)
        else:
            rows = self._rows(jobs)
            found = _run_in_query(self._spark, partial(run_batches, settings), rows)
        return [*chain.from_iterable(_decode(b"[%b]" % b",".join(found)))]

    def _rows(self, jobs: Sequence[JobRecord | None]) -> list[bytes]:
        """Encode jobs for a query, several in a row, unless that leaves tasks without work."""
        size = 1
        if len(jobs) > _ROWS_PER_TASK:
            size = min(_ROW_JOBS_MAX, len(jobs) // (self.parallelism * _ROWS_PER_TASK)) or 1
        return [_encode(jobs[first : first + size]) for first in range(0, len(jobs), size)]


def _run_in_rdd(
    context: SparkContext,
    run: Callable[[Iterable[bytes]], Iterable[bytes]],
    jobs: Sequence[JobRecord | None],
) -> list[bytes]:
    """Run jobs as one row for each task; return what the rows come back as, in their order."""
    tasks = min(len(jobs), context.defaultParallelism)
    cuts = (len(jobs) * number // tasks for number in range(tasks + 1))
    rows = [_encode(jobs[first:last]) for first, last in pairwise(cuts)]
    return context.parallelize(rows, tasks).mapPartitions(run).collect()


def _run_in_query(
    spark: SparkSession,
    run: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    rows: list[bytes],
) -> list[bytes]:
    """Run rows; return what they come back as, in their order: Spark returns them in any."""
    table = pa.table({"n": range(len(rows)), "body": rows}, schema=_SCHEMA)
    found = spark.createDataFrame(table).mapInArrow(run, _ROWS).toArrow()
    columns = (found.column(name).to_pylist() for name in ("n", "body"))
    return [body for _, body in sorted(zip(*columns, strict=True))]


def _check_loaded(outcomes: Sequence[HandlerOutcome]) -> None:
    """Raise ``InvalidRequestError`` if an executor could not load the handlers."""
    for outcome in outcomes:
        if outcome.load_error:
            message = (
                f"the executors cannot load the handlers: {outcome.load_error}; install their "
                "module there, send it with --py-files, or put it on a disk that all of them share"
            )
            raise InvalidRequestError(message)


def _unavailable(error: Exception) -> UnavailableError:
    reason = "its process has ended" if is_connection_lost(error) else _reason(error)
    message = (
        f"Spark cannot run jobs any more: {reason}; see its log, and start it again, with more "
        "memory (spark.driver.memory) if the system killed it"
    )
    return UnavailableError(message)


def _reason(error: Exception) -> str:
    return reason_of(error)[:_REASON_LENGTH_MAX]
