"""``spark.readStream.format("bucketq")``: jobs as an unbounded table, one micro-batch at a time.

Spark keeps one of these readers alive in a Python process on the driver while a query runs, and
asks it for micro-batches; ``micro_batches`` claims, keeps and acknowledges them. The jobs of a
micro-batch travel to the executors with their tasks, so executors need no access to the queue. Only
large payloads they fetch by themselves, from the store or the broker.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bucketq.client.loop_thread import LoopThread
from bucketq.errors import PayloadTooLargeError
from bucketq.model.records import JobRecord
from bucketq.process_memory import collecting_rarely, keep_large_blocks
from bucketq.queue.job import FETCH_BYTES
from bucketq.spark.chosen_columns import EVERY_COLUMN, ChosenColumns
from bucketq.spark.format_options import StreamOptions, stream_options
from bucketq.spark.format_values import refuse
from bucketq.spark.large_bodies import size_of
from bucketq.spark.stream.checkpoint import batch_of, offset_of
from bucketq.spark.stream.micro_batches import MicroBatches
from bucketq.spark.table.job_schema import (
    JobPartition,
    cut_lines,
    read_job_partition,
    with_numbers,
)

if TYPE_CHECKING:
    import pyarrow as pa

_NEW_OBJECTS = 300_000
"""More than the source makes for several batches, so that Python does not look for garbage among
their jobs."""
_ROWS_PER_PARTITION = 5_000
"""Two partitions for a default micro-batch of 10,000 jobs; ``minPartitions`` asks for more."""


class _OpenStream:
    """The open queue and its micro-batches, on an event loop in a thread, which renews leases."""

    def __init__(self, options: StreamOptions) -> None:
        self._stack = AsyncExitStack()
        self._stack.enter_context(collecting_rarely(_NEW_OBJECTS))
        keep_large_blocks()
        self._loop_thread = LoopThread()
        self.call = self._loop_thread.call
        try:
            self.batches = self.call(self._open, options)
        except BaseException:
            self.close()
            raise

    async def _open(self, options: StreamOptions) -> MicroBatches:
        queue = await self._stack.enter_async_context(options.access.connection())
        return await self._stack.enter_async_context(MicroBatches(queue, options))

    def close(self) -> None:
        """Stop renewing leases, and close the queue."""
        try:
            self.call(self._stack.aclose)
        finally:
            self._loop_thread.stop()


class JobStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of jobs. It opens the queue when Spark first asks for something.

    Options are checked then too: if a reader cannot be made, Spark shows an error of its own after
    ours.
    """

    def __init__(self, given: Mapping[str, str], columns: ChosenColumns = EVERY_COLUMN) -> None:
        self._given = dict(given)
        self._columns = columns
        self._stream: _OpenStream | None = None
        self._planned: tuple[int, list[JobPartition]] = (0, [])
        """The last micro-batch and its partitions: a query may ask for them several times."""

    @cached_property
    def _options(self) -> StreamOptions:
        return stream_options(self._given)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins: before an unacknowledged batch."""
        return self._offset(self._opened().batches.first())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the largest size of a micro-batch."""
        return ReadMaxRows(self._options.max_jobs)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Acknowledge the micro-batch that ends at ``start``, and claim the next one."""
        stream, number = self._opened(), self._number(start)
        most = _most_jobs(limit)
        return self._offset(stream.call(stream.batches.latest, number, most))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Claim only as many jobs as are queued now."""
        stream = self._opened()
        stream.call(stream.batches.limit_to_queued)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return what a query's progress shows: the last batch, its size, and the lag."""
        stream = self._opened()
        found = stream.call(stream.batches.report)
        return {
            **self._offset(found.batch),
            "jobs": found.jobs,
            "bytes": found.payload_bytes,
            "waiting": found.waiting,
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[JobPartition]:
        """Split the jobs of a micro-batch."""
        stream, first, last = self._opened(), self._number(start), self._number(end)
        if first == last:
            return []
        if self._planned[0] != last:
            jobs = stream.call(stream.batches.jobs, first, last)
            check_sizes(jobs, self._options.fetch_bytes)
            planned = split(stream.batches.encode(jobs), self._options.partitions)
            for each in planned:
                each.access = self._options.access.for_executors()
                each.number = last
            self._planned = (last, planned)
            stream.call(stream.batches.prepare_next)
        return self._planned[1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode the jobs of a partition, on an executor, which fetches large payloads."""
        options = self._options
        fetch_bytes = FETCH_BYTES if options.fetch_bytes is None else options.fetch_bytes
        number = partition.number if isinstance(partition, JobPartition) else 0
        rows = read_job_partition(partition, options.access, fetch_bytes)
        return self._columns.of(with_numbers(rows, options.consumer, number))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: ``latestOffset`` acknowledged the micro-batch when the next was asked for."""

    def stop(self) -> None:
        """Close the queue; the next driver repeats an open micro-batch."""
        with _not_terminated():
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.close()

    def _opened(self) -> _OpenStream:
        if self._stream is None:
            self._stream = _OpenStream(self._options)
            _stop_on_sigterm()
        return self._stream

    def _offset(self, batch: int) -> dict[str, Any]:
        return offset_of(self._options.consumer, batch)

    def _number(self, offset: dict[str, Any]) -> int:
        return batch_of(offset, self._options.consumer)


def _stop_on_sigterm() -> None:
    """Have Spark call ``stop`` in its process for this reader, which it ends by a signal.

    Spark does call it when that process gets an exception. Elsewhere signals are left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # Spark sends it twice; the second would end it at once.
    sys.exit(128 + number)


@contextmanager
def _not_terminated() -> Iterator[None]:
    """Let no SIGTERM interrupt ``stop``, which releases what is prepared.

    Spark closes the connection to its process, which then calls it, and sends the signal as well.
    """
    is_main = threading.current_thread() is threading.main_thread()
    is_ours = is_main and signal.getsignal(signal.SIGTERM) is _exit
    if is_ours:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def split(lines: list[bytes], at_least: int) -> list[JobPartition]:
    """Split encoded jobs into partitions of about one size, ``at_least`` so many if possible.

    There are more if jobs are large: it is for Spark to run as many tasks at once as fit.
    """
    count = min(max(at_least, ceil(len(lines) / _ROWS_PER_PARTITION)), len(lines))
    cuts = [len(lines) * number // count for number in range(count + 1)] if count else []
    return [
        JobPartition.of_lines(some)
        for first, last in pairwise(cuts)
        for some in cut_lines(lines[first:last])
    ]


def check_sizes(jobs: Sequence[JobRecord], fetch_bytes: int | None) -> None:
    """Raise if a payload would be null in its row although the query did not ask for that."""
    large = [job for job in jobs if job.payload_encoding] if fetch_bytes is None else []
    for job in large:
        if (size_bytes := size_of(job, "payload")) > FETCH_BYTES:
            message = (
                f"the payload of job {job.id} has {size_bytes:,} bytes, and executors fetch up to "
                f'{FETCH_BYTES:,}: set option("fetchBytes", …) to as many as they have memory for; '
                "larger ones are null then, and payload_ref is not"
            )
            raise PayloadTooLargeError(message)


def _most_jobs(limit: ReadLimit) -> int | None:
    """Return the limit of a micro-batch; None means as many jobs as the queue returns at once."""
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    if not isinstance(limit, ReadAllAvailable):
        refuse(f"a stream of jobs is limited by their number, and not by {type(limit).__name__}")
    return None
