"""How jobs are claimed, held, finished and released, and how a lease expires.

Each attempt has a new lease, and every report of a worker must show it. A worker that has been
replaced is rejected with ``LeaseLostError``.

``expire`` ends a lease, and does not judge when: that is done by the process that writes. A broker
finds silent workers in ``broker.lease_expiry``; without one, processes that claim find them in
``commit.direct_lease_expiry``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec.structs import replace

from bucketq.errors import InvalidRequestError, JobGoneError, LeaseLostError
from bucketq.model import check
from bucketq.model.effects.attempts import lease_of, start_all
from bucketq.model.effects.follow_ups import look_ahead, push_follow_ups
from bucketq.model.effects.next_jobs import take_next
from bucketq.model.effects.retry_delay import attempts_left, delay_after_failure
from bucketq.model.effects.side_refs import check_completions, note_named
from bucketq.model.operations import (
    AnyClaim,
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Expire,
    Fail,
    Heartbeat,
    LeaseRef,
    Pulse,
    Release,
    ReleaseMany,
    Request,
    Withdraw,
)
from bucketq.model.records import HEARD, MAX_SNOOZES, NOTHING, Failure, JobRecord, Progress
from bucketq.model.requests.stateless_checks import check_follow_ups
from bucketq.model.settings import MIB
from bucketq.model.state import State

_SECRET_LENGTH = 32  # 128 bits in hexadecimal: leases derived from it cannot be guessed.
_SNOOZED_OUT = f"it was put off {MAX_SNOOZES} times, so putting it off again is a failure"


def claim(state: State, operation: Claim, now: datetime, request: Request) -> tuple[JobRecord, ...]:
    """Hand out the smallest jobs that are due; none if there are none or the queue is paused."""
    check_claim(state, operation, joined=len(request.numbers))
    if operation.wait_s:
        check.delay(operation.wait_s, "wait_s")
    return hand_out(state, operation, now)


def check_claim(state: State, operation: AnyClaim, *, joined: int = 0) -> None:
    """Validate a claim, or several that are joined: the worker, the kinds and the limits."""
    check.name(operation.worker, "worker")
    if operation.kinds:
        check.kinds(operation.kinds)
    check.whole_number(operation.limit, "limit", 1, max(joined, state.settings.max_batch_jobs))
    check.name(operation.secret, "secret")
    if len(operation.secret) < _SECRET_LENGTH:
        raise InvalidRequestError(
            "a claim needs a secret of at least 128 random bits in hexadecimal"
        )
    if operation.lease_s is not None:
        check.lease(operation.lease_s)


def hand_out(state: State, operation: AnyClaim, now: datetime) -> tuple[JobRecord, ...]:
    """Start the smallest jobs that are due, under leases that follow from the claim's secret.

    Raises:
        ColdRowsNeededError: Some that may be among them have not been read.
    """
    state.attach_cold()
    state.promote(now)
    if state.paused:
        return ()
    taken = take_next(state, operation, now)
    if not taken:
        return ()
    running = start_all(taken, operation, operation.secret, now)
    state.start_jobs(running)
    return tuple(running)


def remember_claim(_operation: Claim, answer: tuple[JobRecord, ...]) -> list[tuple[str, int, int]]:
    """Keep which jobs were handed out, by ``seq``, because an id may be used again."""
    return [(job.id, job.seq, job.attempt) for job in answer]


def recall_claim(
    state: State, _operation: Claim, stored: list[tuple[str, int, int]]
) -> tuple[JobRecord, ...]:
    """Answer a retried claim: the same jobs, less those that are held no longer."""
    jobs = ((state.jobs.get(job_id), seq, attempt) for job_id, seq, attempt in stored)
    return tuple(
        job
        for job, seq, attempt in jobs
        if job is not None and job.status == "running" and (job.seq, job.attempt) == (seq, attempt)
    )


def heartbeat(state: State, operation: Heartbeat, now: datetime) -> tuple[Pulse, ...]:
    """Record heartbeats; report which jobs are lost or should be cancelled."""
    check_heartbeat(state, operation)
    return tuple(_beat(state, lease, now, operation.progress) for lease in operation.leases)


def check_heartbeat(state: State, operation: Heartbeat) -> None:
    """Validate a heartbeat."""
    _check_count(state, len(operation.leases))
    for progress in operation.progress.values():
        check.progress(progress)


def pulses(state: State, operation: Heartbeat) -> tuple[Pulse, ...]:
    """Report which jobs are held without recording heartbeats: a broker keeps them elsewhere."""
    return tuple(_pulse(state, lease) for lease in operation.leases)


def complete_many(
    state: State, operation: CompleteMany, now: datetime, request: Request
) -> tuple[bool, ...]:
    """Finish jobs independently: one whose lease was lost does not affect the others."""
    _check_count(state, len(operation.jobs), joined=len(request.numbers))
    with_result, has_follow_ups = [], False
    for finished in operation.jobs:
        if finished.result != NOTHING or finished.result_encoding is not None:
            _check_result(state, finished)
            with_result.append(finished)
        if finished.follow_ups:
            check_follow_ups(finished.follow_ups, state.settings)
            has_follow_ups = True
    has_objects = check_completions(state, operation.jobs if has_follow_ups else with_result)
    done: dict[str, JobRecord] = {}
    pushing: list[Completion] = []
    answer = []
    for finished in operation.jobs:
        job = done.get(finished.job) or state.jobs.by_id.get(finished.job)
        if job is None or job.lease != finished.lease:
            answer.append(False)
        elif job.status == "running":
            done[job.id] = finished_with(job, finished, now)
            answer.append(True)
            if has_follow_ups and finished.follow_ups:
                pushing.append(finished)
        else:
            answer.append(job.outcome == "completed")
    look_ahead(state, pushing, done, now)
    state.finish_jobs(done.values())
    for finished in pushing:
        push_follow_ups(state, finished, now)
    if has_objects:
        note_named(state)
    return tuple(answer)


def remember_lost(
    _operation: CompleteMany | ReleaseMany, answer: tuple[bool, ...]
) -> list[int] | None:
    """Keep the places of those whose leases were lost, if there are any."""
    return [index for index, held in enumerate(answer) if not held] or None


def recall_lost(
    _state: State, operation: CompleteMany | ReleaseMany, stored: list[int] | None
) -> tuple[bool, ...]:
    """Answer retried completions or releases: all are held but those whose places are stored."""
    lost = set(stored or ())
    jobs = operation.jobs if isinstance(operation, CompleteMany) else operation.leases
    return tuple(index not in lost for index in range(len(jobs)))


def _check_count(state: State, count: int, *, joined: int = 0) -> None:
    limit = max(joined, state.settings.max_batch_jobs)
    if count > limit:
        raise InvalidRequestError(
            f"{count} jobs in one call, at most {limit} are allowed (max_batch_jobs)"
        )


def complete(state: State, operation: Complete, now: datetime) -> None:
    """Finish a job. It is idempotent under the same lease."""
    held = _find_held(state, operation.job, operation.lease)
    if held is None:
        job = state.jobs.get(operation.job)
        if job is not None and job.outcome == "completed" and job.lease == operation.lease:
            return
        raise _lost(state, operation.job)
    has_objects = False
    if operation.result != NOTHING or operation.result_encoding is not None or operation.follow_ups:
        _check_result(state, operation)
        has_objects = check_completions(state, (operation,))
    finished = (finished_with(held, operation, now),)
    if operation.follow_ups:
        check_follow_ups(operation.follow_ups, state.settings)
        look_ahead(state, (operation,), (operation.job,), now)
    state.finish_jobs(finished)
    if operation.follow_ups:
        push_follow_ups(state, operation, now)
    if has_objects:
        note_named(state)


def fail(state: State, operation: Fail, now: datetime) -> str:
    """Record a failure; the job is retried later, or is dead."""
    job = _held(state, operation.job, operation.lease)
    check.text(operation.error, "error")
    if operation.snooze and job.snoozes < MAX_SNOOZES:
        return _snooze(state, job, operation.delay_s or 0.0, now)
    limit = job.max_attempts
    if operation.max_attempts is not None:
        check.max_attempts(operation.max_attempts)
        limit = operation.max_attempts if limit is None else limit
    failed = replace(job, failures=job.failures + 1, max_attempts=limit)
    delay = delay_after_failure(failed, state.settings)
    if operation.delay_s is not None:
        check.delay(operation.delay_s)
        delay = timedelta(seconds=operation.delay_s)
    error = operation.error
    if operation.snooze:
        error = f"{_SNOOZED_OUT}: {error}".removesuffix(": ")
    return _end_attempt(
        state,
        _with_error(state, failed, "failed", error, now),
        now,
        run_at=now + delay if delay else None,
        give_up=not operation.retry,
    )


def _snooze(state: State, job: JobRecord, delay_s: float, now: datetime) -> str:
    """Put a job off, at no cost to its attempts."""
    check.delay(delay_s)
    run_at = now + timedelta(seconds=delay_s) if delay_s else None
    snoozed = replace(job, snoozes=job.snoozes + 1)
    return _end_attempt(state, snoozed, now, run_at=run_at, costs=False)


def release(state: State, operation: Release, now: datetime) -> None:
    """Release a job."""
    check.delay(operation.delay_s)
    job = _held(state, operation.job, operation.lease)
    run_at = now + timedelta(seconds=operation.delay_s) if operation.delay_s else None
    give_back(state, job, now, run_at)


def withdraw(state: State, operation: Withdraw, now: datetime) -> int:
    """Release the jobs that a claim was given and that are still held under it."""
    check.name(operation.session, "session")
    check.whole_number(operation.number, "number", 0)
    check.name(operation.secret, "secret")
    session = state.sessions.get(operation.session)
    stored = None if session is None else session.find(operation.number)
    count = 0
    # The id may be that of another request than a claim; what is stored for that is ignored.
    for job_id, seq, attempt in filter(_is_claimed, stored if isinstance(stored, list) else ()):
        job = state.jobs.get(job_id)
        if job is None or job.status != "running" or job.seq != seq:
            continue
        if job.lease == lease_of(operation.secret, job_id, attempt):
            give_back(state, job, now)
            count += 1
    return count


def _is_claimed(entry: object) -> bool:
    """Whether an entry of a stored answer is a job that was claimed (see ``remember_claim``)."""
    return isinstance(entry, list | tuple) and [type(part) for part in entry] == [str, int, int]


def release_many(state: State, operation: ReleaseMany, now: datetime) -> tuple[bool, ...]:
    """Release jobs independently: a lost lease does not affect the others."""
    check.delay(operation.delay_s)
    _check_count(state, len(operation.leases))
    run_at = now + timedelta(seconds=operation.delay_s) if operation.delay_s else None
    answer = []
    for lease in operation.leases:
        job = _find_held(state, lease.job, lease.lease)
        if job is not None:
            give_back(state, job, now, run_at)
        answer.append(job is not None)
    return tuple(answer)


def give_back(state: State, job: JobRecord, now: datetime, run_at: datetime | None = None) -> None:
    """End an attempt at no cost to its job."""
    _end_attempt(state, job, now, run_at=run_at, costs=False)


def expire(state: State, operation: Expire, now: datetime) -> bool:
    """End the lease of a silent worker, unless the job has moved on since it was judged."""
    job = state.jobs.get(operation.job)
    if job is None or job.status != "running" or job.attempt != operation.attempt:
        return False
    ahead = (consumer.ahead for consumer in state.consumers)
    if any(each and job.lease == lease_of(each.secret, job.id, job.attempt) for each in ahead):
        give_back(state, job, now)  # It is only reserved for a batch: no worker has seen it.
        return True
    lost = replace(job, lost_leases=job.lost_leases + 1)
    _end_attempt(state, _with_error(state, lost, "lost", "no heartbeat", now), now, run_at=None)
    return True


def _check_result(state: State, finished: Complete | Completion) -> None:
    if finished.result_encoding is not None:
        check.encoding(finished.result_encoding, "result_encoding")
    if finished.result != NOTHING:
        limit = min(state.settings.max_result_bytes, MIB)
        check.body(finished.result, "result", "max_result_bytes", limit)


def finished_with(job: JobRecord, finished: Complete | Completion, now: datetime) -> JobRecord:
    """Return a completed job with its result."""
    return replace(
        job,
        status="done",
        outcome="completed",
        finished_at=now,
        cancel_requested=False,
        silent_s=HEARD,
        lease_s=None,
        progress=None,
        result=finished.result if finished.result != NOTHING else NOTHING,
        result_encoding=finished.result_encoding,
    )


def _beat(state: State, lease: LeaseRef, now: datetime, progress: Mapping[str, Progress]) -> Pulse:
    pulse = _pulse(state, lease)
    if pulse.held:
        job = state.jobs.by_id[lease.job]
        come = progress.get(job.id, job.progress)
        state.replace_job(job, replace(job, heartbeat_at=now, silent_s=HEARD, progress=come))
    return pulse


def _pulse(state: State, lease: LeaseRef) -> Pulse:
    job = _find_held(state, lease.job, lease.lease)
    if job is None:
        return Pulse(lease.job, held=False)
    return Pulse(lease.job, held=True, cancel_requested=job.cancel_requested)


def _held(state: State, job_id: str, lease: str) -> JobRecord:
    job = _find_held(state, job_id, lease)
    if job is None:
        raise _lost(state, job_id)
    return job


def _find_held(state: State, job_id: str, lease: str) -> JobRecord | None:
    """The job, if it is running under this lease, or None."""
    job = state.jobs.by_id.get(job_id)
    is_held = job is not None and job.status == "running" and job.lease == lease
    return job if is_held else None


def _lost(state: State, job_id: str) -> LeaseLostError:
    """Say why a worker lost a job. One in a segment waits or is dead; it is not looked for."""
    job = state.jobs.get(job_id)
    if job is None and state.cold.rows.segments:
        return LeaseLostError(
            f"lease lost: job {job_id} is not running; it waits, is dead, or has been finished and "
            "archived; stop working on it"
        )
    if job is None:
        return JobGoneError(
            f"lease lost: no job {job_id!r} in the queue; it has been finished and archived, or "
            "was never pushed; stop working on it"
        )
    holder = "is now held by another worker" if job.status == "running" else f"is {job.status}"
    return LeaseLostError(
        f"lease lost: job {job_id} (attempt {job.attempt}) {holder}; stop working on it"
    )


def _end_attempt(
    state: State,
    job: JobRecord,
    now: datetime,
    *,
    run_at: datetime | None,
    give_up: bool = False,
    costs: bool = True,
) -> str:
    """End an attempt: the job goes back to the queue, or is finished."""
    freed = replace(
        job,
        lease=None,
        worker=None,
        claimed_at=None,
        heartbeat_at=None,
        silent_s=HEARD,
        lease_s=None,
        progress=None,
    )
    if job.cancel_requested:
        ended = replace(
            freed, status="done", outcome="cancelled", finished_at=now, cancel_requested=False
        )
    elif give_up or (costs and not attempts_left(job, state.settings)):
        ended = replace(freed, status="dead", finished_at=now)
    else:
        ended = replace(freed, status="queued", run_at=run_at)
    state.put_job(ended)
    return ended.status


def _with_error(
    state: State, job: JobRecord, cause: Literal["failed", "lost"], error: str, now: datetime
) -> JobRecord:
    limit = state.settings.max_error_bytes
    raw = error.encode()
    if len(raw) > limit:
        error = raw[:limit].decode(errors="ignore")
    failure = Failure(now, job.attempt, cause, error, job.worker)
    kept = state.settings.max_errors
    return replace(job, errors=(*job.errors, failure)[-kept:] if kept else ())
