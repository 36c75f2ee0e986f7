"""``spark.readStream.format("bucketq")``: jobs as an endless table, taken batch by batch.

Spark keeps one of these readers alive in a Python process on the driver while a query runs, and
asks it for batches; ``claims`` says what becomes of them. The jobs of a batch travel to the
executors with their tasks, so executors need no access to the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bucketq.client.connect import Connection, connect
from bucketq.client.portal import Portal
from bucketq.errors import InvalidRequestError
from bucketq.model.job import JobRecord
from bucketq.spark.stream.checkpoint import number_in, offset_of
from bucketq.spark.stream.micro_batches import Claims
from bucketq.spark.stream.stream_options import StreamOptions
from bucketq.spark.table.job_partition import Rows, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

A = TypeVar("A")

_ROWS_A_PART = 5_000


class _Driver:
    """The open queue and its claims, on a loop of their own, so that leases are kept meanwhile."""

    def __init__(self, options: StreamOptions) -> None:
        """Open the queue, and take the consumer over."""
        access = options.access
        self._connection: Connection[Any] = connect(
            access.url,
            launch="never",
            create=False,
            timeout_s=access.timeout_s,
            token=access.token,
        )
        self._portal = Portal()
        try:
            self.claims = self._portal.call(lambda: self._open(options))
        except BaseException:
            self._portal.stop()
            raise

    async def _open(self, options: StreamOptions) -> Claims:
        claims = Claims(await self._connection.__aenter__(), options)
        try:
            await claims.open()
        except BaseException:
            await self._connection.__aexit__()
            raise
        return claims

    def call(self, make: Callable[[], Coroutine[Any, Any, A]]) -> A:
        """Ask, and wait for the answer."""
        return self._portal.call(make)

    def close(self) -> None:
        """Keep no lease any more, and close the queue."""
        try:
            self._portal.call(self.claims.close)
            self._portal.call(self._connection.__aexit__)
        finally:
            self._portal.stop()


class JobStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of jobs. Nothing is opened before Spark asks for something."""

    def __init__(self, options: StreamOptions) -> None:
        """Take jobs as the options say."""
        self._options = options
        self._driver: _Driver | None = None
        self._planned: tuple[int, list[Rows]] = (0, [])
        """The last batch and its parts: a query may ask for them several times."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins: before a batch that was not acknowledged."""
        return self._offset(self._opened().claims.first())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """How much a batch takes at most."""
        return ReadMaxRows(self._options.max_jobs)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Acknowledge what ends at ``start``, and claim what comes behind it."""
        driver, number = self._opened(), self._number(start)
        most = _most(limit)
        return self._offset(driver.call(lambda: driver.claims.latest(number, most)))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take as many jobs as are waiting now, and then end."""
        driver = self._opened()
        driver.call(driver.claims.take_no_more_than_now)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """What a query's progress shows: the last batch, and how many jobs are waiting."""
        batch, waiting = self._opened().claims.progress
        return {**self._offset(batch), "waiting": waiting}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Rows]:
        """Share out the jobs of a batch."""
        driver, first, last = self._opened(), self._number(start), self._number(end)
        if first == last:
            return []
        if self._planned[0] != last:
            jobs = driver.call(lambda: driver.claims.jobs(first, last))
            self._planned = (last, shared_out(jobs, self._options.partitions))
        return self._planned[1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Turn the jobs of a part into rows, on an executor."""
        return read_rows(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is left to do: a batch was acknowledged when the next one was asked for."""

    def stop(self) -> None:
        """Close the queue; an open batch is done again by the next driver."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _opened(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver

    def _offset(self, batch: int) -> dict[str, Any]:
        return offset_of(self._options.consumer, batch)

    def _number(self, offset: dict[str, Any]) -> int:
        return number_in(offset, self._options.consumer)


class RefusedStream(DataSourceStreamReader):
    """A stream whose options are wrong. It says so when Spark asks for something.

    Where a reader cannot even be made, Spark tells last of an error of its own.
    """

    def __init__(self, reason: str) -> None:
        """Refuse for a reason."""
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Refuse."""
        raise InvalidRequestError(self._reason)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Refuse."""
        del start, limit
        raise InvalidRequestError(self._reason)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Rows]:
        """Refuse."""
        del start, end
        raise InvalidRequestError(self._reason)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Refuse."""
        del partition
        raise InvalidRequestError(self._reason)


def shared_out(jobs: list[JobRecord], at_least: int) -> list[Rows]:
    """Cut a batch into parts of about one size: so many at least, if it has as many jobs."""
    parts = min(max(at_least, ceil(len(jobs) / _ROWS_A_PART)), len(jobs))
    cuts = [len(jobs) * part // parts for part in range(parts + 1)] if parts else []
    return [Rows.of(jobs[first:last]) for first, last in pairwise(cuts)]


def _most(limit: ReadLimit) -> int | None:
    """How many jobs a batch may have; None: as many as the queue hands out at once."""
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    if isinstance(limit, ReadAllAvailable):
        return None
    message = f"a stream of jobs is limited by their number, and not by {type(limit).__name__}"
    raise InvalidRequestError(message)
