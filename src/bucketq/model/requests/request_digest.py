"""A short digest of what a request asks for, to notice an id that is used for another request.

It is the same at every try of one request and on every route: a retry may come from another
process, with less time to wait, and what is an int or a local time in the caller's hands is a float
and in UTC once it has been sent to a broker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, structs

from bucketq.model.base import NewJob, Operation
from bucketq.model.job_batches import OpenBatch
from bucketq.model.limits import SetLimit
from bucketq.model.numbered_batches import Publish
from bucketq.model.operations import (
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Fail,
    GrantToken,
    Purge,
    Push,
    Release,
    ReleaseMany,
)
from bucketq.model.requests.plain_jobs import PlainCompletions, PlainJobs
from bucketq.model.schedules import SetSchedule
from bucketq.model.side_objects import content_of, is_side

_DIGEST_BYTES = 4
"""Enough to notice a mistake: another request has the same digest once in four billion times."""
_encoder = msgspec.json.Encoder(order="sorted")
_encode, _encode_lines = _encoder.encode, _encoder.encode_lines


def is_same(operation: Operation, known: str) -> bool:
    """Whether an operation, perhaps one that was never validated, has the digest ``known``."""
    try:
        return digest(operation) == known
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return False  # What cannot be encoded was never applied.


def digest(operation: Operation) -> str:
    """Return the digest of an operation."""
    return blake2b(_encode(_normalized(operation)), digest_size=_DIGEST_BYTES).hexdigest()


def digests(operations: Sequence[Operation]) -> list[str]:
    """Return the digest of each operation; to encode them together takes half the time."""
    lines = _encode_lines([*map(_normalized, operations)]).split(b"\n")[:-1]
    if len(lines) != len(operations):  # A payload has line breaks.
        return [*map(digest, operations)]
    begin, found = blake2b(digest_size=_DIGEST_BYTES).copy, list[str]()
    for line in lines:
        state = begin()
        state.update(line)
        found.append(state.hexdigest())
    return found


def plain_digests(operation: Push | CompleteMany) -> list[str] | None:
    """Return the digest of a push or completion of each job; None: not all of them are plain."""
    jobs = operation.jobs
    if not isinstance(jobs, PlainJobs | PlainCompletions):
        return None
    lines = _encode_lines(jobs).splitlines()
    if len(lines) != len(jobs):
        return None
    begin, end = _PUSH if isinstance(jobs, PlainJobs) else _COMPLETE
    found = list[str]()
    for line in lines:
        state = begin()
        state.update(line[:-1] + end)
        found.append(state.hexdigest())
    return found


def _frame(alone: Operation, job: NewJob | Completion) -> tuple[Callable[[], Any], bytes]:
    """Return what makes a hash of what an operation has before the JSON of its job, and the rest.

    The fields of the job may be those of the operation, so the JSON is open at its end.
    """
    before, end = _encode(alone).split(_encode(job)[:-1])
    return blake2b(before, digest_size=_DIGEST_BYTES).copy, end


_ONE = NewJob(id="1", kind="1", payload=Raw(b"1"))
_PUSH = _frame(Push(jobs=(_ONE,)), _ONE)
_COMPLETE = _frame(Complete(job="1", lease="1"), Completion(job="1", lease="1"))


def _normalized(operation: Operation) -> Operation:
    normalize = _NORMALIZE.get(type(operation))
    return operation if normalize is None else normalize(operation)


def normalized(job: NewJob) -> NewJob:
    """The same job in the one form that all ways to write it have in common."""
    backoff = job.backoff
    return structs.replace(
        job,
        payload=content_of(job.payload, job.payload_encoding),
        delay_s=_seconds(job.delay_s),
        run_at=None if job.run_at is None else job.run_at.astimezone(UTC),
        backoff=None if backoff is None else type(backoff)(*map(float, structs.astuple(backoff))),
        tags=job.tags or None,
        unique_s=_seconds(job.unique_s),
        unique_scope=None if job.unique_scope == "queued+running" else job.unique_scope,
        expires_in_s=_seconds(job.expires_in_s),
        ends=None,  # The client looks them up again at every try.
        traceparent=None,  # Each try may be in a span of its own.
    )


def _jobs(operation: Push | Publish) -> Operation:
    if isinstance(operation.jobs, PlainJobs) or not any(map(_has_options, operation.jobs)):
        return operation
    return structs.replace(operation, jobs=tuple(map(normalized, operation.jobs)))


def _complete(operation: Complete | Completion) -> Any:
    if not operation.follow_ups and operation.result_encoding is None:
        return operation
    if operation.follow_ups:
        follow_ups = tuple(map(normalized, operation.follow_ups))
        operation = structs.replace(operation, follow_ups=follow_ups)
    if is_side(operation.result_encoding):
        content = content_of(operation.result, operation.result_encoding)
        operation = structs.replace(operation, result=content)
    return operation


def _complete_many(operation: CompleteMany) -> Operation:
    if isinstance(operation.jobs, PlainCompletions):
        return operation
    for each in operation.jobs:
        if each.follow_ups or each.result_encoding is not None:
            return structs.replace(operation, jobs=tuple(map(_complete, operation.jobs)))
    return operation


def _has_options(job: NewJob) -> bool:
    """Whether a job has a field that can be written in several ways."""
    return (
        job.delay_s is not None
        or job.run_at is not None
        or job.backoff is not None
        or job.tags is not None
        or job.unique is not None
        or job.expires_in_s is not None
        or job.payload_encoding is not None
        or job.ends is not None
        or job.traceparent is not None
    )


def _claim(claim: Claim) -> Operation:
    """Leave out what each try has of its own: the name of who asks, a secret, time to wait."""
    lease_s = _seconds(claim.lease_s)
    return structs.replace(claim, worker="", secret="", wait_s=0.0, lease_s=lease_s)


def _grant(grant: GrantToken) -> Operation:
    """Leave out what only the process of the first try can make again; granting compares that."""
    return structs.replace(grant, id="", digest="", ttl_s=_seconds(grant.ttl_s or None))


def _release(release: Release | ReleaseMany) -> Operation:
    return structs.replace(release, delay_s=_seconds(release.delay_s or None))


def _schedule(given: SetSchedule) -> Operation:
    """Leave out what has its default, which a client may write."""
    job, others = normalized(given.job), structs.asdict(given)
    del others["schedule"], others["job"]
    plain = SetSchedule(schedule=given.schedule, job=job)
    others |= {"every_s": float(given.every_s), "jitter_s": float(given.jitter_s)}
    different = {name: value for name, value in others.items() if value != getattr(plain, name)}
    return structs.replace(plain, **different)


def _batch(given: OpenBatch) -> Operation:
    job = given.on_done
    return given if job is None else structs.replace(given, on_done=normalized(job))


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


# The encoder leaves out a zero that is the default only if it is the very object of the class, so
# such a zero becomes None.
_NORMALIZE: dict[type[Operation], Callable[[Any], Operation]] = {
    Push: _jobs,
    Publish: _jobs,
    Claim: _claim,
    Complete: _complete,
    CompleteMany: _complete_many,
    SetSchedule: _schedule,
    SetLimit: lambda limit: structs.replace(limit, period_s=_seconds(limit.period_s)),
    OpenBatch: _batch,
    GrantToken: _grant,
    Fail: lambda fail: structs.replace(fail, delay_s=_seconds(fail.delay_s)),
    Release: _release,
    ReleaseMany: _release,
    Purge: lambda purge: structs.replace(purge, older_than_s=_seconds(purge.older_than_s or None)),
}
