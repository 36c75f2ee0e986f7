"""How jobs come in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec import Raw

from bucketq.errors import (
    InvalidRequestError,
    KeyConflictError,
    PayloadTooLargeError,
    QueueFullError,
)
from bucketq.model import check
from bucketq.model.job import JobRecord
from bucketq.model.operations import NewJob, Push
from bucketq.model.state import State

_LINE_BYTES = 200
"""About what a waiting job's line takes beside its payload."""

_encode = msgspec.json.Encoder(order="deterministic").encode


def push(state: State, operation: Push, now: datetime) -> tuple[str, ...]:
    """Add jobs, all or none; a job that is there already by its key or id is not added again."""
    jobs = operation.jobs
    _check_batch(state, jobs)
    known = [_find(state, job, now) for job in jobs]
    fresh = [job for job, known_id in zip(jobs, known, strict=True) if known_id is None]
    _check_room(state, fresh)
    for job in fresh:
        _add(state, job, now)
    return tuple(known_id or job.id for job, known_id in zip(jobs, known, strict=True))


def remember(operation: Push, answer: tuple[str, ...]) -> tuple[str, ...] | None:
    """Keep the ids only where they are not those that the client made itself."""
    return None if answer == tuple(job.id for job in operation.jobs) else answer


def recall(_state: State, operation: Push, stored: list[str] | None) -> tuple[str, ...]:
    """Answer a retried push."""
    return tuple(job.id for job in operation.jobs) if stored is None else tuple(stored)


def _check_batch(state: State, jobs: tuple[NewJob, ...]) -> None:
    settings = state.settings
    if len(jobs) > settings.max_batch_jobs:
        message = (
            f"{len(jobs)} jobs in one push, at most {settings.max_batch_jobs} are allowed "
            "(max_batch_jobs): push them in several batches"
        )
        raise InvalidRequestError(message)
    ids, keys, size_bytes = set[str](), set[str](), 0
    for job in jobs:
        check.new_job(job, settings)
        size_bytes += len(memoryview(job.payload))
        if job.id in ids or job.key in keys:
            what = f"job id {job.id!r}" if job.id in ids else f"idempotency key {job.key!r}"
            message = f"{what} stands twice in one push"
            raise InvalidRequestError(message)
        ids.add(job.id)
        if job.key is not None:
            keys.add(job.key)
    if size_bytes > settings.max_batch_bytes:
        message = (
            f"{size_bytes:,} bytes of payload in one push, at most "
            f"{settings.max_batch_bytes:,} are allowed (max_batch_bytes): push several batches"
        )
        raise PayloadTooLargeError(message)


def _find(state: State, job: NewJob, now: datetime) -> str | None:
    """The id of the job that this push would repeat, or None."""
    if job.key is not None:
        known = state.keys.get(job.key)
        retention = timedelta(seconds=state.settings.key_retention_s)
        if known is not None and now - known.at <= retention:
            if known.digest != _digest(job):
                message = (
                    f"idempotency key {job.key!r} belongs to job {known.job}, which has other "
                    "content; use another key, or push the same content"
                )
                raise KeyConflictError(message)
            return known.job
    there = state.jobs.get(job.id)
    if there is None:
        return None
    if (there.kind, bytes(there.payload), there.priority, there.key) != (
        job.kind,
        bytes(job.payload),
        job.priority,
        job.key,
    ):
        message = f"job id {job.id!r} belongs to a job with other content; use another id"
        raise KeyConflictError(message)
    return there.id


def _check_room(state: State, fresh: list[NewJob]) -> None:
    settings = state.settings
    if not fresh:
        return
    if len(state.jobs) + len(fresh) > settings.max_jobs:
        message = (
            f"queue full: it holds {len(state.jobs):,} jobs, {settings.max_jobs:,} are allowed "
            "(max_jobs); try again when some have left"
        )
        raise QueueFullError(message)
    size_bytes = state.size_bytes + state.added_bytes
    if size_bytes + sum(map(_size_bytes, fresh)) > settings.max_bytes:
        message = (
            f"queue full: the object has about {size_bytes:,} bytes, {settings.max_bytes:,} are "
            "allowed (max_bytes); try again when some jobs have left"
        )
        raise QueueFullError(message)
    new_keys = sum(job.key is not None and job.key not in state.keys for job in fresh)
    if new_keys and len(state.keys) + new_keys > settings.max_keys:
        message = (
            f"too many idempotency keys: {len(state.keys):,} are remembered, "
            f"{settings.max_keys:,} are allowed (max_keys); push without a key, shorten "
            "key_retention_s, or try again when some have been forgotten"
        )
        raise QueueFullError(message)
    kinds = {job.kind for job in fresh}
    if len(kinds) + len(state.counts) <= settings.max_kinds:
        return  # A kind has one count or more, so there cannot be too many.
    present = {kind for kind, _ in state.counts}
    if len(present | kinds) > settings.max_kinds:
        message = (
            f"too many kinds: the queue holds {len(present):,}, {settings.max_kinds:,} are "
            "allowed (max_kinds); put what varies in the payload or a tag"
        )
        raise QueueFullError(message)


def _add(state: State, job: NewJob, now: datetime) -> None:
    run_at = job.run_at
    if run_at is not None:
        run_at = run_at.astimezone(UTC)
    elif job.delay_s:
        run_at = now + timedelta(seconds=job.delay_s)
    state.put_job(
        JobRecord(
            id=job.id,
            kind=job.kind,
            status="queued",
            seq=state.next_seq,
            payload=job.payload,
            payload_encoding=job.payload_encoding,
            pushed_at=now,
            priority=job.priority,
            run_at=run_at,
            max_attempts=job.max_attempts,
            backoff=job.backoff,
            key=job.key,
            tags=job.tags or None,
            replay_of=job.replay_of,
        )
    )
    state.next_seq += 1
    state.added_bytes += _size_bytes(job)
    if job.key is not None:
        if job.key in state.keys:
            state.remove_key(job.key)
        state.put_key(job.key, job.id, _digest(job), now)


def _digest(job: NewJob) -> str:
    """A digest of all that was pushed except the id, which is new at every push.

    What means the same has the same digest, however it was written.
    """
    content = msgspec.structs.replace(
        job,
        id="",
        payload=_normal(job.payload),
        delay_s=None if job.delay_s is None else float(job.delay_s),
        run_at=None if job.run_at is None else job.run_at.astimezone(UTC),
        tags=job.tags or None,
    )
    return blake2b(_encode(content), digest_size=16).hexdigest()


def _normal(payload: Raw) -> Raw:
    try:
        return Raw(_encode(msgspec.json.decode(payload)))
    except msgspec.ValidationError:  # A number that no type of Python holds.
        return payload


def _size_bytes(job: NewJob) -> int:
    return _LINE_BYTES + len(memoryview(job.payload))
