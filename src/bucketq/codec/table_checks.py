"""What the types of rows do not say, but the model needs: checks of tables that were just read.

Each raises ``ValueError`` with the place of what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from bucketq.codec.deletion_vector import is_vector_id
from bucketq.codec.result_index import is_result_index_id
from bucketq.codec.segment_file import is_segment_id
from bucketq.errors import InvalidRequestError
from bucketq.model.history import ChangeRecord, CopyRecord
from bucketq.model.job_batches import BatchRecord
from bucketq.model.job_ids import made_at
from bucketq.model.limits import BucketRecord, LimitRecord, SetLimit
from bucketq.model.numbered_batches import ConsumerRecord
from bucketq.model.partitions import FEATURE as PARTITIONS
from bucketq.model.partitions import MAX_PARTITIONS, Partition
from bucketq.model.records import JobRecord
from bucketq.model.requests.sessions import Session
from bucketq.model.requests.stateless_checks import check_jitter, check_limit
from bucketq.model.requests.stateless_checks import check_times as check_due
from bucketq.model.results import ResultRow
from bucketq.model.schedules import ScheduleRecord
from bucketq.model.segments import Gone, SegmentRecord


def check_jobs(jobs: list[JobRecord], next_seq: int) -> None:
    """Check statuses, numbers and times of jobs."""
    highest = jobs[-1].seq if jobs else 0
    if highest >= next_seq:
        raise ValueError(f"next_seq is {next_seq}, but jobs have numbers up to {highest}")
    for index, job in enumerate(jobs):
        status = job.status
        if status == "running" and (job.lease is None or job.worker is None):
            raise ValueError(f"jobs[{index}] ({job.id}) is running without a lease and a worker")
        if status == "done" and (job.outcome is None or job.finished_at is None):
            raise ValueError(f"jobs[{index}] ({job.id}) is done without an outcome and a time")
        if (
            job.pushed_at.tzinfo is None
            or ((at := job.run_at) is not None and at.tzinfo is None)
            or ((at := job.claimed_at) is not None and at.tzinfo is None)
            or ((at := job.heartbeat_at) is not None and at.tzinfo is None)
            or ((at := job.finished_at) is not None and at.tzinfo is None)
            or ((at := job.expires_at) is not None and at.tzinfo is None)
        ):
            raise ValueError(f"jobs[{index}] ({job.id}) has a time without a zone")
        if job.after and len(set(job.after)) < len(job.after):
            raise ValueError(f"jobs[{index}] ({job.id}) waits for a job twice")


def check_partition(partition: Partition | None, requires: list[str]) -> None:
    """Check which partition of a queue the object is."""
    if partition is None:
        return
    if requires and PARTITIONS not in requires:
        raise ValueError(f"it is a partition, and does not require {PARTITIONS!r}")
    if not 0 <= partition.index < partition.count <= MAX_PARTITIONS or not partition.queue:
        raise ValueError(f"there is no partition {partition.index} of {partition.count}")


def check_segments(segments: list[SegmentRecord], next_seq: int) -> None:
    """Check that the entries of segments are consistent."""
    seen = set[str]()
    for index, segment in enumerate(segments):
        place = f"segments[{index}] ({segment.id})"
        if not is_segment_id(segment.id) or segment.id in seen:
            raise ValueError(f"{place} has no id of its own")
        seen.add(segment.id)
        if segment.cls != "keys" and segment.last >= next_seq:
            raise ValueError(f"next_seq is {next_seq}, but {place} goes up to {segment.last}")
        gone = Gone(segment.gone)
        last = segment.gone[-1][1] if segment.gone else -1
        is_exact = bool(segment.vector) or segment.live == segment.rows - gone.count
        most = segment.rows - gone.count
        if last >= segment.rows or not is_exact or not 0 < segment.live <= most:
            raise ValueError(f"{place}: its rows, those that are gone and those left do not fit")
        if segment.vector and not (is_vector_id(segment.vector) and segment.vector_bytes > 0):
            raise ValueError(f"{place} names a vector that cannot be one")
        pushed = segment.pushed
        if segment.base < 0 or (segment.base > 0) is (pushed is None):
            raise ValueError(f"{place} has a base without a time, or a time without a base")
        if segment.first_id and (segment.cls != "ready" or made_at(segment.first_id) is None):
            raise ValueError(f"{place} has a first_id that no request makes")
        if segment.at.tzinfo is None or (pushed is not None and pushed.at.tzinfo is None):
            raise ValueError(f"{place} has a time without a zone")


def check_sessions(sessions: list[Session]) -> None:
    """Check the ranges of requests that have taken effect."""
    for index, session in enumerate(sessions):
        if any(len(span) != 2 or span[0] > span[1] for span in session.done):  # noqa: PLR2004 - a pair
            raise ValueError(
                f"sessions[{index}] ({session.id}): done must be pairs of first and last"
            )


def check_consumers(consumers: list[ConsumerRecord]) -> None:
    """Check the open batches of consumers."""
    for index, consumer in enumerate(consumers):
        if consumer.epoch < 1 or consumer.batch < 0:
            raise ValueError(
                f"consumers[{index}] ({consumer.id}) has an epoch or a batch below the first"
            )
        if consumer.is_open and not (consumer.batch and consumer.secret):
            raise ValueError(
                f"consumers[{index}] ({consumer.id}) has jobs without a batch and a secret"
            )
        ahead = consumer.ahead
        if ahead is not None and not (ahead.secret and ahead.epoch >= 1):
            raise ValueError(
                f"consumers[{index}] ({consumer.id}) has a prepared batch without a secret"
            )
        jobs = (*consumer.jobs, *(ahead.jobs if ahead is not None else ()))
        if len(set(jobs)) < len(jobs):
            raise ValueError(f"consumers[{index}] ({consumer.id}) has a job twice")


def check_schedules(schedules: list[ScheduleRecord]) -> None:
    """Check when schedules are due."""
    for index, schedule in enumerate(schedules):
        try:
            check_due(schedule.cron, schedule.timezone, schedule.every_s)
            check_jitter(schedule.jitter_s)
        except InvalidRequestError as error:
            raise ValueError(f"schedules[{index}] ({schedule.id}): {error}") from error


def check_limits(limits: list[LimitRecord], buckets: list[BucketRecord]) -> None:
    """Check limits and token buckets."""
    for index, limit in enumerate(limits):
        given = SetLimit(
            target=limit.id, running=limit.running, rate=limit.rate, period_s=limit.period_s
        )
        try:
            check_limit(given)
        except InvalidRequestError as error:
            raise ValueError(f"limits[{index}] ({limit.id}): {error}") from error
    for index, bucket in enumerate(buckets):
        if bucket.full_at.tzinfo is None:
            raise ValueError(f"buckets[{index}] ({bucket.id}) has a time without a zone")


def check_batches(batches: list[BatchRecord]) -> None:
    """Check the counts of batches."""
    for index, batch in enumerate(batches):
        if not batch.fits:
            raise ValueError(f"batches[{index}] ({batch.id}) has counts that do not fit")
        if batch.ended_at is not None and batch.closed_at is None:
            raise ValueError(f"batches[{index}] ({batch.id}) has ended and is open")


def check_history(
    since: int, version: int, changes: Sequence[ChangeRecord], copies: Sequence[CopyRecord]
) -> None:
    """Check that the rows of the history are those of versions without a hole, up to this one."""
    if not since and (changes or copies):
        raise ValueError("it has rows of a history, and does not say since when")
    before = version - len(changes)
    if changes and before + 1 < since:
        raise ValueError(f"changes has {len(changes)} rows, but the history begins with {since}")
    for index, change in enumerate(changes):
        if change.seq != before + index + 1:
            raise ValueError(
                f"changes[{index}] is of version {change.seq}, not {before + index + 1}"
            )
    last = since - 2
    for index, copy in enumerate(copies):
        if not last < copy.seq < version or copy.id != f"{copy.seq:020d}":
            raise ValueError(f"heads[{index}] ({copy.id}) is not of a version that is kept")
        last = copy.seq


def check_results(results: list[ResultRow]) -> None:
    """Check that rows on results can be looked into."""
    for index, row in enumerate(results):
        place = f"results[{index}] ({row.id})"
        if row.has_moved:
            if not is_result_index_id(row.id) or row.hashes:
                raise ValueError(f"{place} names neither archive files nor an object with rows")
        elif not row.is_sound:
            raise ValueError(f"{place} does not have as many hashes as results")


def check_times(found: Any) -> None:
    """Check that times have a zone: one without cannot be compared with the others."""
    times = {"created_at": found.created_at}
    if found.broker is not None:
        times["broker.since"] = found.broker.since
    if found.time is not None:
        noted = structs.asdict(found.time).items()
        times |= {f"time.{name}": value for name, value in noted if value is not None}
    timed = ("sessions", "keys", "consumers", "writers", "audit", "workers", "reservations")
    times |= {f"results[{at}].at": row.at for at, row in enumerate(found.results)}
    for table in timed:
        times |= {f"{table}[{at}].at": row.at for at, row in enumerate(getattr(found, table))}
    times |= {f"heads[{at}].at": row.at for at, row in enumerate(found.heads)}
    times |= {f"changes[{at}].at": row.at for at, row in enumerate(found.changes)}
    times |= {f"workers[{at}].since": row.since for at, row in enumerate(found.workers)}
    for index, schedule in enumerate(found.schedules):
        times[f"schedules[{index}].created_at"] = schedule.created_at
        times[f"schedules[{index}].decided_at"] = schedule.decided_at
    for index, batch in enumerate(found.batches):
        names = ("opened_at", "closed_at", "ended_at")
        known = ((name, getattr(batch, name)) for name in names)
        times |= {f"batches[{index}].{name}": at for name, at in known if at is not None}
    for index, row in enumerate(found.tokens):
        times[f"tokens[{index}].created_at"] = row.created_at
        if row.expires_at is not None:
            times[f"tokens[{index}].expires_at"] = row.expires_at
    for name, time in times.items():
        if time.tzinfo is None:
            raise ValueError(f"{name} is a time without a zone")
