"""``for_each_batch`` and ``settle``: what a function that gets micro-batches needs of the queue.

Spark passes such a function a frame and a number of its own, which begins again with a new
checkpoint. The queue's own numbers do not: they are in the columns ``consumer`` and
``consumer_batch``, and what was done under them can be recognised whatever became of Spark's
checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bucketq.client.blocking_queue import BlockingQueue
from bucketq.errors import InvalidRequestError
from bucketq.model.numbered_batches import SettledJob
from bucketq.queue import payload as payloads
from bucketq.spark.queue_access import QueueAccess
from bucketq.tracing import batch_span
from bucketq.worker.failure import describe
from bucketq.worker.handler_exceptions import GiveUp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = ("consumer", "consumer_batch")
_PAGE_JOBS = 500
"""As a stream reads its batches."""
_COMMIT_JOBS = 1_000
_COMMIT_BYTES = 8 << 20
"""What goes in one commit: small beside what a queue allows, and large beside the cost of one."""
_ERROR_BYTES = 16 << 10
"""Of a traceback; the queue keeps as many bytes of it as its settings say."""
_SHOWN_IDS = 3
"""Of how many jobs a message has the ids: it stays a line."""
_log = logging.getLogger(__name__)


class _RowError(Exception):
    """The error of a row, in its own words."""


@dataclass(frozen=True)
class StreamBatch:
    """A micro-batch of a stream of jobs, as ``for_each_batch`` passes it on."""

    frame: DataFrame
    """Its rows."""
    consumer: str
    number: int
    """The number that the queue gave it. With the name of the consumer it stands for one set of
    jobs, also after the checkpoint was deleted."""
    access: QueueAccess | None = None
    """How ``settle`` opens the queue."""


def for_each_batch(
    function: Callable[[StreamBatch], object],
    url: str | None = None,
    consumer: str | None = None,
    *,
    token: str | None = None,
    timeout_s: float = 60.0,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch`` that calls yours with a ``StreamBatch``.

    Give it the address of the queue if your function calls ``settle``, and the name of the consumer
    too if it needs to see micro-batches without rows. Otherwise they are left out: their number is
    in no row, and has to be asked for.
    """
    access = None if url is None else QueueAccess(url, timeout_s, token)

    def run(batch: StreamBatch) -> None:
        with batch_span(batch.consumer, batch.number):
            function(batch)

    def call(frame: DataFrame, number: int) -> None:
        del number
        missing = [name for name in _COLUMNS if name not in frame.columns]
        if missing:
            message = (
                f"the stream has no column {missing[0]}: select the columns consumer and "
                "consumer_batch of the source too"
            )
            raise InvalidRequestError(message)
        first = frame.select(*_COLUMNS).head()
        if first is not None:
            run(StreamBatch(frame, first["consumer"], first["consumer_batch"], access))
        elif access is not None and consumer is not None:
            with access.open() as queue:
                numbers = {each.name: each.batch for each in queue.consumers()}
            if consumer not in numbers:
                message = f"no consumer {consumer!r} in the queue; there are: {', '.join(numbers)}"
                raise InvalidRequestError(message)
            # It is the last one that was claimed: the next is claimed when this one is over.
            run(StreamBatch(frame, consumer, numbers[consumer], access))

    return call


def settle(batch: StreamBatch, outcomes: Mapping[str, object] | DataFrame) -> int:
    """Complete or fail jobs of a micro-batch one by one; return how many.

    ``outcomes`` has the result of each job by its id, or the exception with which it failed;
    ``bucketq.GiveUp`` says that it is not to be retried. Or it is a frame with a column ``id``, and
    ``result`` or ``error`` or both: a row whose ``error`` is null is completed.

    These jobs leave the micro-batch. A job that failed is retried in a later one, or is dead if it
    has no attempts left. The others are completed when Spark has committed the micro-batch. What
    was settled stays settled if the micro-batch is repeated: it does not have these jobs then.

    Raises:
        InvalidRequestError: A job is not in the micro-batch, or that is over.
    """
    if batch.access is None:
        message = "settle needs the address of the queue: pass it, as in for_each_batch(f, url)"
        raise InvalidRequestError(message)
    given = outcomes if isinstance(outcomes, Mapping) else _collected(outcomes)
    if not given:
        return 0
    with batch.access.open() as queue:
        held, lost = _leases(queue, batch)
        unknown = [job_id for job_id in given if job_id not in held and job_id not in lost]
        if unknown:
            message = (
                f"{_listed(unknown)} not in batch {batch.number} of consumer {batch.consumer!r}: "
                "settle each of its jobs once, by the column id"
            )
            raise InvalidRequestError(message)
        jobs = [_settled(job_id, held[job_id], given[job_id]) for job_id in given if job_id in held]
        missed = [job_id for job_id in given if job_id in lost]
        count = 0
        for some in _cut(jobs):
            state = queue.settle_batch(batch.consumer, batch.number, some)
            count += state.jobs
            missed += state.lost
    if missed:
        _log.warning(
            "%s not settled, because others have claimed them: set a longer leaseSeconds",
            _listed(missed),
        )
    return count


def _collected(frame: DataFrame) -> dict[str, object]:
    """Return the outcomes of a frame by the ids of the jobs."""
    columns = [name.lower() for name in frame.columns]
    if "id" not in columns or not {"result", "error"} & set(columns):
        message = f"outcomes need a column id, and result or error; there are {', '.join(columns)}"
        raise InvalidRequestError(message)
    found: dict[str, object] = {}
    for row in frame.collect():
        values = dict(zip(columns, row, strict=True))
        error, result = values.get("error"), values.get("result")
        if values["id"] in found:
            message = f"job {values['id']} stands twice among the outcomes"
            raise InvalidRequestError(message)
        is_row = hasattr(result, "asDict")
        plain = result.asDict(recursive=True) if is_row else result  # type: ignore[union-attr]
        found[values["id"]] = plain if error is None else _RowError(error)
    return found


def _leases(queue: BlockingQueue[Any], batch: StreamBatch) -> tuple[dict[str, str], set[str]]:
    """Return the leases of the jobs of a batch, and the ids of those that others have claimed."""
    held: dict[str, str] = {}
    lost: set[str] = set()
    start: int | None = 0
    while start is not None:
        page = queue.read_batch(
            batch.consumer, batch.number, start=start, limit=_PAGE_JOBS, fetch=False
        )
        held |= {job.id: job.lease.lease for job in page.jobs}
        lost |= set(page.lost)
        start = page.next_start
    return held, lost


def _settled(job_id: str, lease: str, outcome: object) -> SettledJob:
    if isinstance(outcome, BaseException):
        is_row = isinstance(outcome, _RowError)
        error = str(outcome) if is_row else describe(outcome, _ERROR_BYTES)
        return SettledJob(
            job=job_id, lease=lease, error=error, retry=not isinstance(outcome, GiveUp)
        )
    if outcome is None:
        return SettledJob(job=job_id, lease=lease)
    raw, encoding = payloads.encode(outcome, "result")
    return SettledJob(job=job_id, lease=lease, result=raw, result_encoding=encoding)


def _cut(jobs: Iterable[SettledJob]) -> Iterator[list[SettledJob]]:
    some: list[SettledJob] = []
    size_bytes = 0
    for job in jobs:
        size = len(bytes(job.result)) + len(job.error or "")
        if some and (len(some) == _COMMIT_JOBS or size_bytes + size > _COMMIT_BYTES):
            yield some
            some, size_bytes = [], 0
        some.append(job)
        size_bytes += size
    if some:
        yield some


def _listed(ids: list[str]) -> str:
    shown = ", ".join(ids[:_SHOWN_IDS]) + (", …" if len(ids) > _SHOWN_IDS else "")
    return f"{len(ids):,} jobs are ({shown})" if len(ids) > 1 else f"job {shown} is"
