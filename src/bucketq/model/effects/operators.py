"""What operators do to a queue: cancel, reorder, redrive, purge, pause, configure, tidy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, RejectedError
from bucketq.model import check
from bucketq.model.effects import expiry, timekeeping
from bucketq.model.effects.dead_jobs import dead_jobs
from bucketq.model.effects.limits.limit_changes import buckets_to_mend, groups_wait, mend_bucket
from bucketq.model.effects.links.job_links import find_jobs
from bucketq.model.effects.reads import not_found, page
from bucketq.model.indexes.finished_jobs import finished_at
from bucketq.model.job_batches import CancelJobs, CancelledJobs
from bucketq.model.operations import (
    Cancel,
    CancelAnswer,
    Configure,
    List,
    Pause,
    Purge,
    Redrive,
    Resume,
    SetPriority,
    Tidy,
)
from bucketq.model.records import JobRecord
from bucketq.model.segments import TidySegments
from bucketq.model.settings import Settings, changed
from bucketq.model.state import ForgettableTable, State

_SLACK = 1.25
"""Keys in segments are dropped when the oldest is older than its retention by this factor, so that
many are dropped at a time. Until then they are invalid and only take up room."""
_PAGE_JOBS = 300
"""How many dead jobs in segments are finished by one commit, which writes all of them: 75 KB with
payloads of 100 bytes."""


def cancel(state: State, operation: Cancel, now: datetime) -> CancelAnswer:
    """Cancel a waiting job at once; ask the worker of a running one to stop."""
    return _cancel(state, _existing(state, operation.job), now)


def cancel_jobs(state: State, operation: CancelJobs, now: datetime) -> CancelledJobs:
    """Cancel a page of the jobs of a batch that are not over, in the order of their pushes."""
    check.name(operation.batch, "batch")
    chosen = List(
        statuses=("queued", "running"),
        batch_id=operation.batch,
        after=operation.after,
        limit=min(operation.limit, state.settings.max_batch_jobs),
    )
    found = page(state, chosen, now)
    state.attach_cold()
    state.cold.find([job.id for job in found.jobs if job.id not in state.jobs])  # All at once.
    jobs = [_existing(state, job.id) for job in found.jobs]
    # One that waits to stop already is not counted again.
    answers = [_cancel(state, job, now) for job in jobs if not job.cancel_requested]
    cancelled = answers.count("cancelled")
    return CancelledJobs(cancelled, len(answers) - cancelled, found.next_after)


def remember_cancelled(_operation: CancelJobs, answer: CancelledJobs) -> list[int | None]:
    """Store the answer as a list."""
    return [answer.cancelled, answer.requested, answer.next_after]


def recall_cancelled(_state: State, _operation: CancelJobs, stored: list[int]) -> CancelledJobs:
    """Answer a retried request as before."""
    return CancelledJobs(*stored)


def _cancel(state: State, job: JobRecord, now: datetime) -> CancelAnswer:
    if job.status == "queued":
        state.put_job(replace(job, status="done", outcome="cancelled", finished_at=now))
        return "cancelled"
    if job.status == "running":
        if not job.cancel_requested:
            state.put_job(replace(job, cancel_requested=True))
        return "requested"
    return "cancelled" if job.outcome == "cancelled" else "finished"


def set_priority(state: State, operation: SetPriority, _now: datetime) -> None:
    """Give a job that waits another priority, also if it is delayed or waits for others.

    Its entry under the old priority stays in its lane, which drops it.
    """
    check.priority(operation.priority)
    job = _existing(state, operation.job)
    if job.status != "queued":
        raise InvalidRequestError(
            f"job {job.id} is {job.status}; only the priority of a job that waits can be changed"
        )
    if job.priority != operation.priority:
        state.has_moved = True
        state.put_job(replace(job, priority=operation.priority))


def redrive(state: State, operation: Redrive, _now: datetime) -> int:
    """Queue dead jobs again; they keep their place, their attempts and their history."""
    check.whole_number(operation.limit, "limit", 0, 2**31)
    found = _dead(state, operation.jobs, operation.kinds)
    chosen = list(islice(found, operation.limit or None))
    after = _still_open(state, chosen)
    for job in chosen:
        left = tuple([name for name in job.after if name in after])
        fresh = replace(job, failures=0, lost_leases=0, snoozes=0, after=left)
        state.put_job(replace(fresh, status="queued", run_at=None, finished_at=None))
    return len(chosen)


def _still_open(state: State, jobs: list[JobRecord]) -> set[str]:
    """The jobs that dead jobs wait for again if they are redriven; others no longer count."""
    names = {name for job in jobs for name in job.after}
    found = find_jobs(state, names) if names else {}
    redriven = {job.id for job in jobs}
    return {
        name
        for name, job in found.items()
        if job.status in ("queued", "running") or name in redriven
    }


def purge(state: State, operation: Purge, now: datetime) -> int:
    """Finish dead jobs."""
    check.delay(operation.older_than_s, "older_than_s")
    check.whole_number(operation.limit, "limit", 0, 2**31)
    chosen = list(islice(_to_purge(state, operation, now), operation.limit or None))
    for job in chosen:
        _bury(state, job, now)
    return len(chosen)


def _to_purge(state: State, operation: Purge, now: datetime) -> Iterator[JobRecord]:
    before = now - timedelta(seconds=operation.older_than_s)
    for job in _dead(state, operation.jobs, operation.kinds):
        if not operation.older_than_s or finished_at(job) <= before:
            yield job
        elif not operation.jobs:
            return  # All others died later.


def pause(state: State, operation: Pause, _now: datetime) -> None:
    """Hand out no more jobs of a kind, or none at all."""
    if operation.kind is None:
        if not state.paused:
            state.paused = True
            state.touch_head()
        return
    check.kind(operation.kind)
    if operation.kind in state.paused_kinds:
        return
    if len(state.paused_kinds) >= state.settings.max_kinds:
        raise RejectedError(
            f"{len(state.paused_kinds)} kinds are paused, no more are allowed (max_kinds)"
        )
    state.paused_kinds[operation.kind] = None
    state.touch_head()


def resume(state: State, operation: Resume, _now: datetime) -> None:
    """Undo the pause of a kind, or every pause."""
    if operation.kind is None:
        if state.paused or state.paused_kinds:
            state.paused, state.paused_kinds = False, {}
            state.touch_head()
    elif operation.kind in state.paused_kinds:
        del state.paused_kinds[operation.kind]
        state.touch_head()


def configure(state: State, operation: Configure, _now: datetime) -> Settings:
    """Change settings. A queue without segments goes back to format 1 with ``max_format`` 1."""
    settings = changed(state.settings, operation.changes)
    if "max_format" in operation.changes and settings.max_format == 1 and state.requires:
        if state.cold.rows.segments:
            raise RejectedError(
                f"max_format cannot be 1 while the queue has segments ({len(state.cold.rows)}): "
                "their jobs must have been worked off first, or cancelled; see `bucketq stats`"
            )
        if state.reservations:
            raise RejectedError(
                "max_format cannot be 1 while segments are being written for the queue "
                f"({len(state.reservations)} reservations); try again when that has ended"
            )
        if state.schedules:
            raise RejectedError(
                f"max_format cannot be 1 while the queue has schedules ({len(state.schedules)}); "
                "remove them first"
            )
        if state.expiring.first() is not None:
            raise RejectedError(
                "max_format cannot be 1 while there are jobs that expire; they must have been "
                "claimed first, or cancelled"
            )
        if state.batches or state.followed.held_count:
            raise RejectedError(
                "max_format cannot be 1 while there are batches, or jobs that wait for others "
                f"({len(state.batches)} and {state.followed.held_count}); let them end first"
            )
        if state.limits or groups_wait(state):
            raise RejectedError(
                "max_format cannot be 1 while the queue has limits, or jobs with a group; remove "
                "the limits, and finish or cancel the jobs first"
            )
        if state.partition is not None:
            raise RejectedError("max_format cannot be 1 in a queue with partitions")
        state.requires.clear()  # ``changed`` has made sure that history is off.
        _forget_moved_results(state)
        state.touch_head()
    if settings != state.settings:
        state.settings = settings
        state.touch_head()
    return settings


def _forget_moved_results(state: State) -> None:
    """Forget where results are, as far as that is in objects, which need format 2."""
    for row in [row for row in state.results if row.has_moved]:
        state.forget("results", row.id)


def recall_settings(state: State, _operation: Configure, _stored: None) -> Settings:
    """Answer a retried change of settings."""
    return state.settings


def is_untidy(state: State, now: datetime) -> bool:
    """Whether ``tidy`` has something to do; it is cheap."""
    if expiry.is_due(state, now):
        return True
    now = timekeeping.agreed(state, now)
    return (
        state.sessions.has_expired(state.settings, now)
        or _expired_key(state, now) is not None
        or _expired_row(state, now) is not None
        or next(buckets_to_mend(state, now), None) is not None
        or _expired_dead(state, now) is not None
    )


def tidy(state: State, _operation: Tidy, now: datetime) -> int:
    """Forget rows, and finish dead jobs and those that wait in vain, that outlived their time."""
    expired = expiry.finish_expired(state, now)
    finished_at, now = now, timekeeping.agreed(state, now)
    horizon = state.sessions.horizon
    forgotten = state.sessions.forget_expired(state.settings, now)
    state.changes.extend(("sessions", session) for session in forgotten)
    if state.sessions.horizon != horizon:
        state.touch_head()
    count = expired + len(forgotten)
    while (key := _expired_key(state, now)) is not None:
        state.forget_key(key)
        count += 1
    while (row := _expired_row(state, now)) is not None:
        state.forget(*row)
        count += 1
    for bucket in buckets_to_mend(state, now):
        mend_bucket(state, bucket, now)
        count += 1
    while (job := _expired_dead(state, now)) is not None:
        _bury(state, job, finished_at)
        count += 1
    return count


def _expired_key(state: State, now: datetime) -> str | None:
    """The id of a key in the object to be forgotten, or None."""
    key, retention = state.known_keys.oldest(), state.settings.key_retention_s
    return key.id if key is not None and now - key.at > timedelta(seconds=retention) else None


def _expired_row(state: State, now: datetime) -> tuple[ForgettableTable, str] | None:
    """The table and the id of a row to be forgotten, or None."""
    settings = state.settings
    token = state.token_ends.first()
    if token is not None and not token.is_live(now):
        return ("tokens", token.id)
    consumer = state.consumer_ages.first()
    if consumer and now - consumer.at > timedelta(seconds=settings.consumer_retention_s):
        return ("consumers", consumer.id)
    writer = state.writer_ages.first()
    if writer and now - writer.at > timedelta(seconds=settings.writer_retention_s):
        return ("writers", writer.id)
    batch = state.followed.batch_ends.first()
    ended_at = None if batch is None else batch.ended_at
    if batch and ended_at and now - ended_at > timedelta(seconds=settings.batch_retention_s):
        return ("batches", batch.id)
    return _silent_row(state, now)


def _silent_row(state: State, now: datetime) -> tuple[ForgettableTable, str] | None:
    """The row of a worker, of results or of a bulk write that is too old, or None."""
    settings, worker = state.settings, state.workers.oldest()
    if worker and worker.is_silent(settings.worker_retention_s, now):
        return ("workers", worker.id)
    result, retention_s = state.results.oldest(), settings.result_retention_s
    if result and now - result.at > timedelta(seconds=retention_s):
        return ("results", result.id)
    reserved = min(state.reservations, key=attrgetter("at"), default=None)  # There are few.
    if reserved and now - reserved.at > timedelta(seconds=settings.reservation_retention_s):
        return ("reservations", reserved.id)
    return None


def _expired_dead(state: State, now: datetime) -> JobRecord | None:
    """The next dead job to be finished; None if there is none, or if it is in a segment."""
    oldest, cold_at = state.dead_ages.first(), state.cold.next_death()
    if oldest is None or (cold_at is not None and cold_at <= finished_at(oldest)):
        return None  # ``tidy_segments`` reads those in segments; here nothing can be waited for.
    if state.dead_count > state.settings.max_dead and state.cold.is_attached:
        return oldest
    return oldest if _died_long_ago(state, oldest, now) else None


def _died_long_ago(state: State, job: JobRecord, now: datetime) -> bool:
    retention = timedelta(seconds=state.settings.dead_retention_s)
    return job.finished_at is not None and now - job.finished_at > retention


def is_cold_untidy(state: State, now: datetime) -> bool:
    """Whether ``tidy_segments`` is due; it is cheap."""
    if expiry.is_cold_due(state, now):
        return True
    now, settings = timekeeping.agreed(state, now), state.settings
    key_at = state.known_keys.oldest_cold_at()
    if key_at and now - key_at > _SLACK * timedelta(seconds=settings.key_retention_s):
        return True
    if not state.cold.is_attached:
        return bool(state.cold.rows.count("dead")) and state.dead_count > settings.max_dead
    oldest, cold_at = state.dead_ages.first(), state.cold.next_death()
    if cold_at is None or (oldest is not None and finished_at(oldest) < cold_at):
        return False
    is_old = now - cold_at > timedelta(seconds=settings.dead_retention_s)
    return is_old or state.dead_count > settings.max_dead


def tidy_segments(state: State, _operation: TidySegments, now: datetime) -> int:
    """Forget keys, and finish dead and expired jobs, in segments that have outlived their time.

    Raises:
        ColdRowsNeededError: Something that decides which has not been read.
    """
    ended_at, now = now, timekeeping.agreed(state, now)
    known = len(state.known_keys)
    chosen = list(islice(_cold_deaths(state, now), _PAGE_JOBS))
    expired = expiry.find_expired_rows(state, ended_at, _PAGE_JOBS)
    oldest_at = now - timedelta(seconds=state.settings.key_retention_s)
    touched = state.known_keys.expire_cold(oldest_at)
    state.changes.extend(("segments", name) for name in touched)
    for job in chosen:
        _bury(state, job, ended_at)
    count = expiry.finish_expired_rows(state, expired, ended_at)
    return known - len(state.known_keys) + len(chosen) + count


def _cold_deaths(state: State, now: datetime) -> Iterator[JobRecord]:
    """Yield the dead jobs that are too many, or too old; the oldest deaths first."""
    excess = state.dead_count - state.settings.max_dead
    for count, job in enumerate(dead_jobs(state)):
        if count >= excess and not _died_long_ago(state, job, now):
            return
        yield job


def _existing(state: State, job_id: str) -> JobRecord:
    """Return the job with this id, to be changed; raises ``JobNotFoundError``."""
    state.attach_cold()
    job = state.borrow_job(job_id)
    if job is None:
        raise not_found(job_id)
    return job


def _dead(state: State, jobs: tuple[str, ...], kinds: tuple[str, ...]) -> Iterator[JobRecord]:
    """Return the dead jobs that a request selects, oldest deaths first.

    Those in segments are decoded as they are reached. Raises ``ColdRowsNeededError``.
    """
    check.kinds(kinds)
    if not jobs:
        return dead_jobs(state, kinds)
    state.cold.find([job_id for job_id in jobs if job_id not in state.jobs])  # All at once.
    chosen = [_existing(state, job_id) for job_id in dict.fromkeys(jobs)]
    for job in chosen:
        if job.status != "dead":
            raise InvalidRequestError(
                f"job {job.id} is {job.status}, not dead; only dead jobs can be named here"
            )
    return (job for job in chosen if not kinds or job.kind in kinds)


def _bury(state: State, job: JobRecord, now: datetime) -> None:
    state.put_job(replace(job, status="done", outcome="dead", finished_at=now))
