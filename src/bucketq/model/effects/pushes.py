"""Pushing and publishing jobs: validation, limits, ids and idempotency keys.

A writer that publishes numbers its batches and their parts, and the numbers only rise. The object
holds the last position, written in the commit that holds the jobs: what is not behind it was
published before, so it is published once, however often the writer repeats it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from operator import attrgetter

import msgspec

from bucketq.errors import (
    KeyConflictError,
    RejectedError,
)
from bucketq.model import check
from bucketq.model.base import NewJob, row_bytes
from bucketq.model.effects import unique_jobs
from bucketq.model.effects.links import job_links
from bucketq.model.effects.push_checks import check_push
from bucketq.model.effects.push_keys import (
    FUTURE,
    check_key,
    digest_of,
    is_valid_key,
    keys_to_drop,
)
from bucketq.model.effects.room import check_room
from bucketq.model.effects.segment_changes import name_pushed
from bucketq.model.effects.side_refs import check_payloads, note_named
from bucketq.model.job_ids import KnownJobId, is_first_of, is_made_by, made_by
from bucketq.model.limits import GROUPS
from bucketq.model.numbered_batches import Publish, WriterRecord
from bucketq.model.operations import Push, Request
from bucketq.model.records import JobRecord
from bucketq.model.reservations import Adopt, Reserve
from bucketq.model.segments import Pushed, WrittenSegment
from bucketq.model.side_objects import content_in
from bucketq.model.state import State

_id, _kind = attrgetter("id"), attrgetter("kind")


def push(
    state: State, operation: Push | Publish, now: datetime, request: Request
) -> tuple[str, ...]:
    """Add jobs, all or none; return their ids, or those of the jobs that they would repeat."""
    jobs, written = operation.jobs, request.written
    if written is not None and written.settings == state.settings:
        return _push_any(state, jobs, row_bytes(jobs), now, request)
    fresh_bytes, is_plain = check_push(state.settings, jobs, request)
    if not is_plain or written is not None or _is_known(state, jobs, request):
        return _push_any(state, jobs, fresh_bytes, now, request)
    check_room(state, len(jobs), fresh_bytes, map(_kind, jobs))
    numbers = enumerate(jobs, state.next_seq)
    state.add_jobs([_plain_record(job, seq, now) for seq, job in numbers], are_plain=True)
    _count_new(state, len(jobs), fresh_bytes)
    return tuple(map(_id, jobs))


def _push_any(
    state: State, jobs: tuple[NewJob, ...], fresh_bytes: int, now: datetime, request: Request
) -> tuple[str, ...]:
    """Add jobs that may have options, or may be known."""
    written = request.written
    has_objects = check_payloads(state, jobs)
    known, keyed, named = _look_up(state, jobs, now, request)
    changed: Sequence[tuple[JobRecord, JobRecord]] = ()
    more_bytes = 0
    if named:
        changed = look_up_unique(state, named, now, known, keyed)
        more_bytes = row_bytes([new for _, new in changed]) - row_bytes([old for old, _ in changed])
    fresh: Sequence[NewJob] = jobs
    if known:
        fresh = without(known, jobs)
        fresh_bytes = row_bytes(fresh)
    links = job_links.find_links(state, jobs, fresh, known)
    if fresh or more_bytes > 0:
        check_room(state, len(fresh), fresh_bytes + max(0, more_bytes), map(_kind, fresh))
    for key in keys_to_drop(state, keyed, now) if keyed else ():
        state.forget_key(key)
    if has_objects:
        note_named(state)
    jobs = links.resolved(jobs)
    if known or written is not None:
        add_some(state, jobs, known, now, () if written is None else written.segments)
    else:
        numbers = enumerate(jobs, state.next_seq)
        state.add_jobs([_record(job, seq, now) for seq, job in numbers])
        _count_new(state, len(jobs), fresh_bytes)
    if named:
        unique_jobs.note_added(state, [job.id for job in without(known, named)])
        unique_jobs.change_waiting(state, changed)
        state.added_bytes += more_bytes
    job_links.add_links(state, links, now)
    for key, job in keyed.items():
        digest = digest_of(job) if key == job.key else ""
        state.put_key(key, known.get(job.id, job.id), digest, now)
    if not known:
        return tuple(map(_id, jobs))
    return tuple(KnownJobId(known[job.id]) if job.id in known else job.id for job in jobs)


def publish(state: State, operation: Publish, now: datetime, request: Request) -> bool:
    """Add jobs, all or none, unless the position was published; return whether it was new."""
    known = state.writers.get(operation.writer)
    if is_published(state, operation):
        if operation.last and known and known.position == (operation.batch, operation.part):
            state.forget("writers", operation.writer)
        return False
    if not operation.last:
        _check_writer(state, operation.writer)
    push(state, operation, now, request)
    if not operation.last:
        move_writer(state, operation, now)
    elif known is not None:
        state.forget("writers", operation.writer)
    return True


def move_writer(state: State, operation: Publish | Adopt, now: datetime) -> None:
    """Note the position that is published; raises if there are too many writers."""
    _check_writer(state, operation.writer)
    known = state.writers.get(operation.writer)
    state.put_row(
        WriterRecord(
            id=operation.writer,
            seq=state.writers.next_seq if known is None else known.seq,
            batch=operation.batch,
            part=operation.part,
            at=now,
        )
    )


def _check_writer(state: State, writer: str) -> None:
    limit = state.settings.max_writers
    if state.writers.get(writer) is None and len(state.writers) >= limit:
        raise RejectedError(
            f"too many writers: the queue remembers {len(state.writers):,}, {limit:,} are allowed "
            "(max_writers); use a name again, or shorten writer_retention_s"
        )


def may_grant(state: State, operation: Push | Publish, request: Request) -> bool:
    """Whether a push that was not applied yet will be granted, if no job of it is known.

    It is asked before rows of a large push are put in segments: that would be in vain.
    """
    try:
        if isinstance(operation, Publish) and is_published(state, operation):
            return False
        jobs = operation.jobs
        size_bytes, _ = check_push(state.settings, jobs, request)
        check_room(state, len(jobs), size_bytes, map(_kind, jobs))
    except RejectedError:
        return False
    return True


def is_published(state: State, operation: Publish | Reserve | Adopt) -> bool:
    """Whether a position of a writer was reached; raises if it is not one."""
    check.name(operation.writer, "writer")
    check.whole_number(operation.batch, "batch", 0)
    check.whole_number(operation.part, "part", 0)
    known = state.writers.get(operation.writer)
    return known is not None and (operation.batch, operation.part) <= known.position


def remember(operation: Push, answer: tuple[str, ...]) -> tuple[str, ...] | None:
    """Keep the ids only if they are not those that the client made itself."""
    return None if answer == tuple(map(_id, operation.jobs)) else tuple(map(str, answer))


def recall(_state: State, operation: Push, stored: list[str] | None) -> tuple[str, ...]:
    """Answer a retried push."""
    ids = map(_id, operation.jobs)
    if stored is None:
        return tuple(ids)
    return tuple(
        job_id if job_id == made else KnownJobId(job_id)
        for made, job_id in zip(ids, stored, strict=True)
    )


def _is_known(state: State, jobs: tuple[NewJob, ...], request: Request) -> bool:
    """Whether the queue has a job with the id of one of these."""
    if not state.jobs.by_id.keys().isdisjoint(map(_id, jobs)):
        return True
    return bool(state.cold.rows.segments and _find_cold(state, jobs, request))


def _count_new(state: State, count: int, size_bytes: int) -> None:
    state.added_bytes += size_bytes
    state.next_seq += count


def _look_up(
    state: State, jobs: tuple[NewJob, ...], now: datetime, request: Request
) -> tuple[dict[str, str], dict[str, NewJob], list[NewJob]]:
    """The ids of jobs that are there already, by those in the push; the others by their keys.

    The last are those of the others that have a unique name, which is looked for afterwards.
    """
    known: dict[str, str] = {}
    keyed: dict[str, NewJob] = {}
    named: list[NewJob] = []
    by_id = state.jobs.by_id
    wanted = [job.key for job in jobs if job.key is not None]
    keys = state.known_keys.find(wanted) if wanted else {}
    cold = _find_cold(state, jobs, request) if state.cold.rows.segments else {}
    for job in jobs:
        there = by_id.get(job.id) or cold.get(job.id)
        if job.key is None and there is None and job.unique is None:
            continue
        key = keys.get(job.key or "")
        if key is not None and is_valid_key(state, key, now):
            check_key(job, key)
            known[job.id] = key.job
        elif there is not None:
            _check_repeated(job, there)
            known[job.id] = there.id
        else:
            if job.key is not None:
                keyed[job.key] = job
            if job.unique is not None:
                named.append(job)
    return known, keyed, named


def look_up_unique(
    state: State,
    named: list[NewJob],
    now: datetime,
    known: dict[str, str],
    keyed: dict[str, NewJob],
    ending: Collection[str] = (),
) -> list[tuple[JobRecord, JobRecord]]:
    """Add the jobs whose unique names are taken to those that are known; return what they replace.

    A period becomes a key. A key of a job that is not added stands for the one that is there, so
    that a push that is repeated with it has the same answer. Jobs in ``ending`` have no name.
    """
    unique_jobs.check_unique(state, named)
    wanted = {key: job for job in named if (key := unique_jobs.period_key(job)) is not None}
    found = state.known_keys.find(wanted) if wanted else {}
    valid = {
        key: row
        for key, row in found.items()
        if -FUTURE <= now - row.at <= timedelta(seconds=wanted[key].unique_s or 0)
    }
    times = {job.id: (_run_at(job, now), _expires_at(job, now)) for job in named}
    taken = unique_jobs.find_taken(state, named, times, valid, now, ending)
    known |= taken.ids
    keyed |= {key: job for key, job in wanted.items() if key not in valid}
    return taken.changed


def _find_cold(state: State, jobs: tuple[NewJob, ...], request: Request) -> dict[str, JobRecord]:
    """The jobs in segments with the ids of a push, but for ids that no other request makes."""
    by_id, session, numbers = state.jobs.by_id, request.session, request.numbers
    if request.counts:
        by_maker = zip(jobs, _makers(request), strict=True)
        new = (job.id for job, made in by_maker if not is_made_by(made, job.id))
    elif numbers:
        each = zip(jobs, numbers, strict=True)
        new = (job.id for job, number in each if not is_first_of(session, number, job.id))
    else:
        made = made_by(session, request.number)
        new = (job.id for job in jobs if not is_made_by(made, job.id))
    ids = [job_id for job_id in new if job_id not in by_id]
    found = state.cold.find(ids) if ids else {}
    return {job_id: job for job_id, ((_, job, _), _) in found.items()}


def _makers(request: Request) -> Iterator[frozenset[str]]:
    """Yield, for each job of joined pushes, what the ids that its push makes have in common."""
    for number, count in zip(request.numbers, request.counts, strict=True):
        yield from repeat(made_by(request.session, number), count)


def _check_repeated(job: NewJob, there: JobRecord) -> None:
    """Reject a job whose id belongs to one with other content; its priority may have changed."""
    same = (job.kind, content_in(job), job.key, job.group)
    if (there.kind, content_in(there), there.key, there.group) != same:
        raise KeyConflictError(
            f"job id {job.id!r} belongs to a job with other content; use another id"
        )


def without(known: Mapping[str, str], jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs that are not known."""
    return [job for job in jobs if job.id not in known]


def add_some(
    state: State,
    jobs: tuple[NewJob, ...],
    known: Mapping[str, str],
    now: datetime,
    written: Sequence[WrittenSegment],
) -> None:
    """Add the jobs that are not known, each with the number of its place in the push.

    Those in segments that were written for the push are in the queue once these are named.
    """
    if len(known) == len(jobs):
        return
    first = state.next_seq
    left = {place for place, job in enumerate(jobs) if job.id in known}
    if written and any(job.group for job in jobs):
        state.requires[GROUPS] = None
    for segment in written:
        if name_pushed(state, segment, Pushed(first, now), left):
            state.changes += [("jobs", jobs[n].id) for n in segment.seqs if n not in left]
            if state.recorder is not None:
                rows = ((jobs[n], first + n) for n in segment.seqs if n not in left)
                state.recorder.add(_record(job, seq, now) for job, seq in rows)
            left.update(segment.seqs)
    hot = [_record(job, first + n, now) for n, job in enumerate(jobs) if n not in left]
    state.add_jobs(hot)
    state.added_bytes += row_bytes(hot)
    state.next_seq = first + len(jobs)


def _run_at(job: NewJob, now: datetime) -> datetime | None:
    if job.run_at is not None:
        return job.run_at.astimezone(UTC)
    return now + timedelta(seconds=job.delay_s) if job.delay_s else None


def _expires_at(job: NewJob, now: datetime) -> datetime | None:
    return None if job.expires_in_s is None else now + timedelta(seconds=job.expires_in_s)


def _record(job: NewJob, seq: int, now: datetime) -> JobRecord:
    # One more argument would triple the time: Python passes more than 15 as a dictionary.
    record = JobRecord(
        id=job.id,
        kind=job.kind,
        status="queued",
        seq=seq,
        payload=job.payload,
        payload_encoding=job.payload_encoding,
        pushed_at=now,
        priority=job.priority,
        run_at=_run_at(job, now),
        max_attempts=job.max_attempts,
        backoff=job.backoff,
        key=job.key,
        tags=job.tags or None,
        replay_of=job.replay_of,
        unique=job.unique,
    )
    has_more = job.group or job.after or job.batch_id is not None
    if not has_more and job.expires_in_s is None and job.traceparent is None:
        return record
    links = {"batch_id": job.batch_id, "after": job.after, "on_failed": job.on_failed}
    links["traceparent"] = job.traceparent
    expires_at = _expires_at(job, now)
    return msgspec.structs.replace(record, expires_at=expires_at, group=job.group, **links)


def _plain_record(job: NewJob, seq: int, now: datetime) -> JobRecord:
    """Return the same as ``_record`` for a job without options, in half the time."""
    return JobRecord(
        id=job.id,
        kind=job.kind,
        status="queued",
        seq=seq,
        payload=job.payload,
        pushed_at=now,
        priority=job.priority,
    )
