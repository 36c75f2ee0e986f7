"""What is done to schedules, and how one fires: its jobs are pushed by the commit that says so.

Nothing here computes a time. What is due comes in with ``Fire``, and counts only if the schedule is
still as it was when that was computed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from msgspec import structs

from bucketq.base32 import crockford
from bucketq.errors import InvalidRequestError, RejectedError, ScheduleNotFoundError
from bucketq.model import check, job_ids
from bucketq.model.base import NewJob, row_bytes
from bucketq.model.effects.pushes import push
from bucketq.model.effects.room import check_room
from bucketq.model.effects.side_refs import refuse_side
from bucketq.model.operations import Push, Request
from bucketq.model.partitions import id_made_in
from bucketq.model.requests.stateless_checks import check_jitter, check_times
from bucketq.model.schedules import (
    FEATURE,
    MISSED,
    MOST_RUNS,
    Fire,
    PauseSchedule,
    ReadSchedules,
    RemoveSchedule,
    ResumeSchedule,
    RunSchedule,
    ScheduleRecord,
    SetAnswer,
    SetSchedule,
)
from bucketq.model.settings import KIB
from bucketq.model.state import State

_FORMAT = 2
"""The first format with a list of features."""
_PAYLOAD_BYTES = 16 * KIB
"""The largest payload: every commit writes it, whether the schedule is due or not."""
_OF_ONE_PUSH = (
    *("delay_s", "run_at", "key", "replay_of", "unique", "expires_in_s", "batch_id"),
    "traceparent",
)
"""Options of a job that are for one push, and not for every run of a schedule."""
_TEMPLATE = (
    "kind",
    "payload",
    "payload_encoding",
    "priority",
    "max_attempts",
    "backoff",
    "tags",
    "group",
)
"""What a schedule and its jobs have in common."""


def set_schedule(state: State, operation: SetSchedule, now: datetime) -> SetAnswer:
    """Add a schedule, or change one. If it is the same already, nothing is changed."""
    _check(state, operation)
    refuse_side(operation.job, "a schedule")
    known = state.schedules.get(operation.schedule)
    limit = state.settings.max_schedules
    if known is None and len(state.schedules) >= limit:
        raise RejectedError(
            f"too many schedules: the queue has {len(state.schedules):,}, {limit:,} are allowed "
            "(max_schedules); remove those that are not used"
        )
    row = ScheduleRecord(
        id=operation.schedule,
        seq=state.schedules.next_seq,
        created_at=now,
        decided_at=now,
        cron=operation.cron,
        timezone=operation.timezone,
        every_s=float(operation.every_s),
        missed=next(missed for missed in MISSED if missed == operation.missed),
        jitter_s=float(operation.jitter_s),
        alone=operation.alone,
        **{name: getattr(operation.job, name) for name in _TEMPLATE},
    )
    row = structs.replace(row, tags=row.tags or None)
    if known is not None:
        kept = ["seq", "paused", "last_job", "last_seq"]
        if known.timing == row.timing:
            kept += ["created_at", "decided_at"]
        row = structs.replace(row, **{name: getattr(known, name) for name in kept})
        if row == known:
            return "unchanged"
    _put(state, row)
    return "created" if known is None else "changed"


def remove_schedule(state: State, operation: RemoveSchedule, _now: datetime) -> bool:
    """Remove a schedule."""
    check.name(operation.schedule, "schedule")
    if operation.schedule not in state.schedules:
        return False
    state.forget("schedules", operation.schedule)
    return True


def pause_schedule(state: State, operation: PauseSchedule, _now: datetime) -> None:
    """Push no more jobs of a schedule."""
    row = _existing(state, operation.schedule)
    if not row.paused:
        _put(state, structs.replace(row, paused=True))


def resume_schedule(state: State, operation: ResumeSchedule, now: datetime) -> None:
    """Continue with what is due from now on."""
    row = _existing(state, operation.schedule)
    if row.paused:
        _put(state, structs.replace(row, paused=False, decided_at=max(row.decided_at, now)))


def run_schedule(
    state: State, operation: RunSchedule, now: datetime, request: Request
) -> tuple[str, ...]:
    """Push the job of a schedule, beside those that are due."""
    row = _existing(state, operation.schedule)
    job = _placed(state, _job_of(row, operation.job))
    seq = state.next_seq
    ids = push(state, Push(jobs=(job,)), now, request)
    _put(state, structs.replace(row, last_job=job.id, last_seq=seq))
    return ids


def recall_run(state: State, operation: RunSchedule, _stored: None) -> tuple[str, ...]:
    """Answer a retried run."""
    return (id_made_in(operation.job, state.partition),)


def read_schedules(
    state: State, _operation: ReadSchedules, _now: datetime
) -> tuple[ScheduleRecord, ...]:
    """Return the schedules."""
    return tuple(state.schedules)


def fire(state: State, operation: Fire, now: datetime) -> tuple[str, ...]:
    """Push the jobs of runs that are due, and note that they were decided.

    If anything was decided since that was computed, nothing is changed.
    """
    row = state.schedules.get(operation.schedule)
    is_allowed = state.settings.max_format >= _FORMAT
    if row is None or row.paused or not is_allowed or not _is_current(row, operation):
        return ()
    runs = operation.runs
    times = (operation.after, *runs)
    is_rising = all(one < other for one, other in zip(times, runs, strict=False))
    if not is_rising or times[-1] > operation.until or len(runs) > MOST_RUNS:
        raise InvalidRequestError(f"the runs of schedule {row.id} do not follow what was decided")
    if row.alone and runs and _is_open(state, row):
        runs = ()
    jobs = [(_placed(state, run_of(row, due)), due) for due in runs]
    if jobs:
        check_room(state, len(jobs), row_bytes([job for job, _ in jobs]), (row.kind,))
    for job, due in jobs:
        seq = state.next_seq
        push(state, Push(jobs=(job,)), now, _request_of(row, due))
        row = structs.replace(row, last_job=job.id, last_seq=seq)
    _put(state, structs.replace(row, decided_at=operation.until))
    return tuple(job.id for job, _ in jobs)


def _is_current(row: ScheduleRecord, operation: Fire) -> bool:
    """Whether a schedule is as it was when its due times were computed."""
    computed_from = (operation.timing, operation.created_at, operation.after)
    return (row.timing, row.created_at, row.decided_at) == computed_from


def _is_open(state: State, row: ScheduleRecord) -> bool:
    """Whether the last run is not finished. Raises ``ColdRowsNeededError``."""
    job = state.find_job(row.last_job) if row.last_job else None
    return job is not None and job.seq == row.last_seq and job.status in {"queued", "running"}


def run_of(row: ScheduleRecord, due: datetime) -> NewJob:
    """Make the job of a run. Its id follows from the schedule and the due time."""
    request = _request_of(row, due)
    due_ms = max(0, request.number // 1000)
    time = crockford(due_ms, job_ids.TIME_LENGTH)
    job = _job_of(row, job_ids.job_id(time, request.session, request.number, 0))
    if not row.jitter_s:
        return job
    drawn = int.from_bytes(blake2b(job.id.encode(), digest_size=4).digest()) / 2**32
    return structs.replace(job, run_at=due + timedelta(seconds=row.jitter_s * drawn))


def _placed(state: State, job: NewJob) -> NewJob:
    return structs.replace(job, id=id_made_in(job.id, state.partition))


def _request_of(row: ScheduleRecord, due: datetime) -> Request:
    """Name the push of a run as if a client had made it, so that no other push makes its id."""
    since_epoch = due - datetime(1970, 1, 1, tzinfo=UTC)
    session = f"schedule/{row.id}/{row.created_at.isoformat()}"
    return Request(Push(jobs=()), session, since_epoch // timedelta(microseconds=1))


def _job_of(row: ScheduleRecord, job_id: str) -> NewJob:
    return NewJob(id=job_id, **{name: getattr(row, name) for name in _TEMPLATE})


def _put(state: State, row: ScheduleRecord) -> None:
    state.requires[FEATURE] = None
    state.schedules.put(row)
    state.changes.append(("schedules", row.id))


def _existing(state: State, name: str) -> ScheduleRecord:
    check.name(name, "schedule")
    row = state.schedules.get(name)
    if row is None:
        raise ScheduleNotFoundError(
            f"there is no schedule {name!r}; `bucketq schedule ls` lists those of the queue"
        )
    return row


def _check(state: State, operation: SetSchedule) -> None:
    check.name(operation.schedule, "schedule")
    if state.settings.max_format < _FORMAT:
        raise RejectedError(
            f"schedules need max_format {_FORMAT}: run `bucketq upgrade` once every process of the "
            "queue has been upgraded"
        )
    check_times(operation.cron, operation.timezone, operation.every_s)
    if operation.missed not in MISSED:
        raise InvalidRequestError(
            f"missed must be one of {', '.join(MISSED)}, got {operation.missed!r}"
        )
    check_jitter(operation.jitter_s)
    if not isinstance(operation.alone, bool):
        raise InvalidRequestError(
            f"alone must be True or False, got {type(operation.alone).__name__}"
        )
    _check_job(state, structs.replace(operation.job, id=operation.schedule))


def _check_job(state: State, job: NewJob) -> None:
    for name in _OF_ONE_PUSH:
        if getattr(job, name) is not None:
            raise InvalidRequestError(f"the job of a schedule cannot have {name}")
    if job.after:
        raise InvalidRequestError("the job of a schedule cannot have after")
    size_bytes = check.new_job(job, state.settings)
    if size_bytes > _PAYLOAD_BYTES:
        raise InvalidRequestError(
            f"the payload of a schedule has {size_bytes:,} bytes, at most {_PAYLOAD_BYTES:,} are "
            "allowed; put the data in an object of its own, and its address here"
        )
