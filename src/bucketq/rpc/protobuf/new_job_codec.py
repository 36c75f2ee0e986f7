"""Encodes and decodes what several operations share: jobs to be pushed, and names.

Tens of thousands of jobs are decoded each second. Reading a field of a protobuf message from Python
costs more than parsing it, so options that are rarely set are in a nested message, which is looked
up once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Any, cast

from msgspec import Raw, structs

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.records import Backoff, Encoding
from bucketq.rpc.protobuf import bucketq_pb2 as pb

MAX_ITEMS = 100_000
"""How many jobs, leases or names one operation may have; no queue's settings allow more."""
ITEM_BYTES = 80
"""About the size of the names and numbers of one item, without its payload."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_count(items: Sequence[object], what: str) -> None:
    """Reject more items than the settings of any queue allow."""
    if len(items) > MAX_ITEMS:
        message = f"{len(items):,} {what} in one request, at most {MAX_ITEMS:,} are allowed"
        raise InvalidRequestError(message)


def names(values: Any) -> tuple[str, ...]:
    """Decode names."""
    if not values:
        return ()
    check_count(values, "names")
    return tuple(values)


def encoding(value: str) -> Encoding | None:
    """Decode the encoding of a payload or result; the model rejects unknown ones."""
    return cast("Encoding", value) if value else None


def write_jobs(sent: Any, jobs: Sequence[NewJob]) -> int:
    """Append jobs to a message, and return their approximate size."""
    add = sent.add
    size = 0
    for job in jobs:
        payload = bytes(job.payload)
        new = add()
        new.id = job.id
        new.kind = job.kind
        new.payload = payload
        size += len(payload) + ITEM_BYTES
        if job.priority:
            new.priority = job.priority
        if job.payload_encoding is not None:
            new.payload_encoding = job.payload_encoding
        if (
            job.key is not None
            or job.delay_s is not None
            or job.run_at is not None
            or job.tags is not None
            or job.max_attempts is not None
            or job.backoff is not None
            or job.replay_of is not None
        ):
            size += _write_options(new.options, job)
    return size


def _write_options(options: pb.JobOptions, job: NewJob) -> int:
    options.SetInParent()
    if job.key is not None:
        options.key = job.key
    if job.delay_s is not None:
        options.delay_s = job.delay_s
    if job.run_at is not None:
        since_epoch = job.run_at - _EPOCH
        options.run_at.seconds = since_epoch.days * 86_400 + since_epoch.seconds
        options.run_at.nanos = since_epoch.microseconds * 1000
    if job.max_attempts is not None:
        options.max_attempts = job.max_attempts
    if job.backoff is not None:
        options.backoff.base_s = job.backoff.base_s
        options.backoff.factor = job.backoff.factor
        options.backoff.max_s = job.backoff.max_s
    if job.replay_of is not None:
        options.replay_of = job.replay_of
    if job.tags:
        options.tags.update(job.tags)
        return ITEM_BYTES * (1 + len(job.tags))
    return ITEM_BYTES


def read_jobs(jobs: Any) -> tuple[NewJob, ...]:
    """Decode jobs to be pushed."""
    if len(jobs) > MAX_ITEMS:
        check_count(jobs, "jobs")
    # A queue holds the name of a kind once, and not once for each job.
    return tuple(
        [
            NewJob(
                id=job.id,
                kind=intern(job.kind),
                payload=Raw(job.payload),
                payload_encoding=job.payload_encoding or None,
                priority=job.priority,
            )
            if not job.HasField("options")
            else _read_job(job, job.options)
            for job in jobs
        ]
    )


def _read_job(job: pb.NewJob, options: pb.JobOptions) -> NewJob:
    run_at: datetime | None = None
    if options.HasField("run_at"):
        moment = options.run_at
        run_at = _EPOCH + timedelta(seconds=moment.seconds, microseconds=moment.nanos // 1000)
    return NewJob(
        id=job.id,
        kind=intern(job.kind),
        payload=Raw(job.payload),
        payload_encoding=encoding(job.payload_encoding),
        priority=job.priority,
        delay_s=options.delay_s if options.HasField("delay_s") else None,
        run_at=run_at,
        max_attempts=options.max_attempts if options.HasField("max_attempts") else None,
        backoff=_read_backoff(options.backoff) if options.HasField("backoff") else None,
        key=options.key if options.HasField("key") else None,
        tags=dict(options.tags) or None,
        replay_of=options.replay_of if options.HasField("replay_of") else None,
    )


def _read_backoff(sent: pb.Backoff) -> Backoff:
    given = {field.name: value for field, value in sent.ListFields()}
    return Backoff(**given)


def by_name(verb: str) -> Callable[[pb.Call, Any], int]:
    """Return an encoder for a rare operation whose fields are those of its message."""

    def write(sent: pb.Call, operation: Any) -> int:
        fields = structs.asdict(operation)
        inner = getattr(sent, verb)
        inner.SetInParent()
        inner.MergeFrom(type(inner)(**{k: v for k, v in fields.items() if v is not None}))
        return ITEM_BYTES + cast("int", inner.ByteSize())

    return write
