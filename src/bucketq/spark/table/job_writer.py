"""``df.write.format("bucketq")``: pushes the rows of a frame, once.

Executors turn their rows into jobs and stage them. When all tasks have succeeded, Spark picks one
message for each partition, and the driver publishes the rows that they name: in one commit, all or
none, or with the option ``maxJobsPerCommit`` in several, one after the other. It also takes several
if the queue, and not the frame, is the reason that the rows are not written in bulk: a write must
not begin to fail because a history was switched on.

A write has an id, made on the driver and pickled with the writer. The ids of its jobs follow from
it, so a task that is retried, a second copy of a slow task, or a commit whose answer was lost
duplicates nothing. Writing the same rows again under the same ``writeId`` resumes the write.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.clock import SystemClock, new_id
from bucketq.errors import (
    BucketQError,
    InvalidRequestError,
    PayloadTooLargeError,
    RejectedError,
    UnavailableError,
)
from bucketq.model.base import NewJob
from bucketq.model.settings import Settings
from bucketq.spark.format_options import WriteOptions
from bucketq.spark.table.staging import (
    RowStager,
    StagedRows,
    by_partition,
    forget_writer,
    task_context,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("bucketq")

_COMMIT_JOBS = 10_000
_COMMIT_BYTES = 32 << 20
"""What goes in one commit of a write that is split without an option: what queues allow by default,
or less. It depends on no setting, so that a write that is resumed is split as before."""
_HINT = 'push in several with option("maxJobsPerCommit", "{}")'


class JobWriter(DataSourceArrowWriter):
    """One write. ``write`` runs on executors, ``commit`` and ``abort`` on the driver."""

    def __init__(
        self,
        schema: StructType,
        options: WriteOptions,
        obstacle: str = "",
        *,
        is_begun: bool = False,
    ) -> None:
        """Write in one commit, or in several if there is an obstacle to a bulk write.

        ``is_begun``: some of its commits were made before, by an earlier run.
        """
        self._obstacle = obstacle
        self._is_begun = is_begun
        self._stager = RowStager(schema, options)
        self._jobs_per_commit = options.jobs_per_commit
        self._write_id = options.write_id or new_id(SystemClock())
        self._is_last = options.write_id is None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        return self._stager.stage(iterator, task_context(), self._write_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the rows of all tasks."""
        staged = by_partition(messages)
        sizes = array("I")
        for each in staged:
            sizes.extend(each.sizes)
        if sizes:
            with self._stager.access.open(create=True) as queue:
                counts = self._counts(sizes, queue.settings())
                self._publish(queue, counts, self._stager.jobs(staged))
                if self._is_last:
                    forget_writer(queue, self._write_id, sum(counts))
        self._stager.clear(self._write_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what was staged."""
        del messages
        self._stager.clear(self._write_id)

    def _counts(self, sizes: Sequence[int], settings: Settings) -> list[int]:
        """Return the number of jobs of each commit."""
        if self._obstacle and self._jobs_per_commit is None:
            counts = default_commits(sizes)
            if self._is_begun or not _fits(sizes, settings):
                _check_commits(
                    sizes, counts, settings, f"a write is split into {max(counts):,} jobs"
                )
                text = "%d jobs are pushed in %d commits, and not in one: %s"
                _log.warning(text, len(sizes), len(counts), self._obstacle)
                return counts
        return commit_sizes(sizes, self._jobs_per_commit, settings)

    def _publish(
        self, queue: BlockingQueue[Any], counts: list[int], jobs: Iterator[NewJob]
    ) -> None:
        done = 0
        for count in counts:
            # The position of a commit is the number of rows up to its end, so it only grows.
            part = done + count
            try:
                # Fetching blocks, and must not run on the queue's own event loop.
                some = list(islice(jobs, count))
                queue.publish(self._write_id, 0, some, part=part)
            except BucketQError as error:
                # Without the cause, whose message is in this one: Spark would print both stacks.
                raise self._explained(error, done, sum(counts)) from None
            done = part

    def _explained(self, error: BucketQError, done: int, total: int) -> BucketQError:
        """Return an error that says how much was pushed, and how to resume."""
        again = f'write the same rows again with option("writeId", "{self._write_id}")'
        if not isinstance(error, RejectedError):
            return UnavailableError(
                f"{done:,} of {total:,} jobs were pushed, and the outcome of the next commit is "
                f"unknown: {error}; {again}, which duplicates nothing"
            )
        if not done:
            return RejectedError(f"nothing was pushed: {error}")
        return RejectedError(f"{done:,} of {total:,} jobs were pushed: {error}; to resume, {again}")


def commit_sizes(
    sizes: Sequence[int], jobs_per_commit: int | None, settings: Settings
) -> list[int]:
    """Return the number of jobs of each commit, in order.

    They follow from the number of jobs and the option alone, so that a write that is resumed is
    split as before, even if the settings of the queue have changed.
    """
    total = len(sizes)
    each = jobs_per_commit or total
    counts = [min(each, total - first) for first in range(0, total, each or 1)]
    what = "the write has" if jobs_per_commit is None else "option maxJobsPerCommit asks for"
    _check_commits(sizes, counts, settings, f"{what} {each:,} jobs")
    return counts


def default_commits(sizes: Sequence[int]) -> list[int]:
    """Return the number of jobs of each commit of a write that is split without an option."""
    counts, size_bytes = [0], 0
    for size in sizes:
        is_full = counts[-1] == _COMMIT_JOBS or size_bytes + size > _COMMIT_BYTES
        if is_full and counts[-1]:
            counts.append(0)
            size_bytes = 0
        counts[-1] += 1
        size_bytes += size
    return counts


def _check_commits(
    sizes: Sequence[int], counts: Sequence[int], settings: Settings, what: str
) -> None:
    """Raise an error if a commit has more jobs or bytes than the queue takes."""
    first = 0
    for count in counts:
        some = sizes[first : first + count]
        first += count
        if count > settings.max_batch_jobs:
            hint = _HINT.format(settings.max_batch_jobs)
            message = (
                f"nothing was pushed: {what} in one commit, and the queue takes "
                f"{settings.max_batch_jobs:,} (max_batch_jobs); {hint}"
            )
            raise InvalidRequestError(message)
        if sum(some) > settings.max_batch_bytes:
            # Half of what fits on average leaves room for rows that are larger than the average.
            fitting = max(1, settings.max_batch_bytes * len(some) // (2 * sum(some)))
            message = (
                f"nothing was pushed: {len(some):,} jobs with {sum(some):,} bytes of payload would "
                f"go in one commit, and the queue takes {settings.max_batch_bytes:,} "
                f"(max_batch_bytes); {_HINT.format(fitting)}"
            )
            raise PayloadTooLargeError(message)


def _fits(sizes: Sequence[int], settings: Settings) -> bool:
    """Whether all jobs may go in one commit."""
    return len(sizes) <= settings.max_batch_jobs and sum(sizes) <= settings.max_batch_bytes
