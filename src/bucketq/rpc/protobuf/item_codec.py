"""Encodes and decodes what a request has many of: new jobs, leases, completions and names.

Tens of thousands of jobs are decoded each second, so these functions are written for speed. Reading
a field of a protobuf message from Python costs more than parsing it, so options that are rarely set
are in a nested message, which is looked up once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Any, cast

from msgspec import Raw

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.numbered_batches import SettledJob
from bucketq.model.operations import Complete, Completion, LeaseRef
from bucketq.model.records import NOTHING, Backoff, Encoding, Progress
from bucketq.rpc.protobuf import bucketq_pb2 as pb

_MAX_ITEMS = 100_000
"""How many jobs, leases or names one operation may have; no queue's settings allow more."""
ITEM_BYTES = 80
"""About the size of the names and numbers of one item, without its payload."""

_PLAIN_OPTIONS = (
    *("key", "delay_s", "max_attempts", "replay_of"),
    *("unique", "unique_scope", "unique_s", "replace", "expires_in_s"),
    *("batch_id", "on_failed", "traceparent"),
)
"""Options of a job that are written as they are."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_count(items: Sequence[object], what: str) -> None:
    """Refuse more items than any queue allows."""
    if len(items) > _MAX_ITEMS:
        message = f"{len(items):,} {what} in one request, at most {_MAX_ITEMS:,} are allowed"
        raise InvalidRequestError(message)


def _write_names(sent: Any, values: Sequence[str]) -> int:
    sent.extend(values)
    return sum(map(len, values))


def read_names(sent: Any) -> tuple[str, ...]:
    """Decode names."""
    check_count(sent, "names")
    return tuple(sent)


def _write_tags(sent: Any, tags: Mapping[str, str]) -> int:
    sent.update(tags)
    return ITEM_BYTES * len(tags)


def _encoding(value: str) -> Encoding | None:
    """Decode the encoding of a payload or result; the model rejects unknown ones."""
    return cast("Encoding", value) if value else None


def _write_jobs(sent: Any, jobs: Sequence[NewJob]) -> int:
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
            or job.unique is not None
            or job.replace is not None
            or job.expires_in_s is not None
            or job.group
            or job.batch_id is not None
            or job.after
            or job.traceparent is not None
        ):
            size += _write_options(new.options, job)
    return size


def _write_options(options: pb.JobOptions, job: NewJob) -> int:
    options.SetInParent()
    if job.group:
        options.group = job.group
    for name in _PLAIN_OPTIONS:
        value = getattr(job, name)
        if value is not None:
            setattr(options, name, value)
    if job.run_at is not None:
        since_epoch = job.run_at - _EPOCH
        options.run_at.seconds = since_epoch.days * 86_400 + since_epoch.seconds
        options.run_at.nanos = since_epoch.microseconds * 1000
    if job.backoff is not None:
        options.backoff.base_s = job.backoff.base_s
        options.backoff.factor = job.backoff.factor
        options.backoff.max_s = job.backoff.max_s
    size = ITEM_BYTES
    if job.after:
        size += _write_names(options.after, job.after)
        options.ends.update(job.ends or {})
    return size + _write_tags(options.tags, job.tags or {})


def _read_jobs(jobs: Any) -> tuple[NewJob, ...]:
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
            else _read_job(job)
            for job in jobs
        ]
    )


def _read_job(job: pb.NewJob) -> NewJob:
    """Decode a job with options; an option that is not set has the default of ``NewJob``."""
    fields = (*job.ListFields(), *job.options.ListFields())
    given: dict[str, Any] = {field.name: value for field, value in fields}
    del given["options"]
    given |= {"id": job.id, "kind": intern(job.kind), "payload": Raw(job.payload)}
    if "run_at" in given:
        at = job.options.run_at
        given["run_at"] = _EPOCH + timedelta(seconds=at.seconds, microseconds=at.nanos // 1000)
    if "backoff" in given:
        given["backoff"] = Backoff(**{f.name: value for f, value in given["backoff"].ListFields()})
    if "tags" in given:
        given["tags"] = dict(given["tags"])
    if "after" in given:
        given["after"] = tuple(given["after"])
    if "ends" in given:
        given["ends"] = dict(given["ends"])
    return NewJob(**given)


def write_job(sent: pb.NewJob, job: NewJob) -> int:
    """Encode one job into a message that has it, and return its approximate size."""
    whole = pb.Push()
    size = _write_jobs(whole.jobs, (job,))
    sent.CopyFrom(whole.jobs[0])
    return size


def read_job(sent: pb.NewJob) -> NewJob:
    """Decode one job."""
    return _read_jobs((sent,))[0]


def _write_leases(sent: Any, leases: Sequence[LeaseRef]) -> int:
    add = sent.add
    for lease in leases:
        held = add()
        held.job = lease.job
        held.lease = lease.lease
    return ITEM_BYTES * len(leases)


def _read_leases(sent: Any) -> tuple[LeaseRef, ...]:
    check_count(sent, "leases")
    return tuple([LeaseRef(held.job, held.lease) for held in sent])


def _write_progress(sent: Any, progress: Mapping[str, Progress]) -> int:
    for job_id, come in progress.items():
        written = sent.add()
        written.job = job_id
        written.done = come.done
        if come.total is not None:
            written.total = come.total
        if come.note:
            written.note = come.note
    return ITEM_BYTES * len(progress)


def _read_progress(sent: Any) -> dict[str, Progress]:
    check_count(sent, "progress")
    return {
        each.job: Progress(
            _number(each.done), _number(each.total) if each.HasField("total") else None, each.note
        )
        for each in sent
    }


def _number(value: float) -> int | float:
    """Return a number as it was before it was sent: a whole one as an integer."""
    return int(value) if value.is_integer() else value


def write_completion(sent: pb.Complete, completion: Complete | Completion) -> int:
    """Encode the completion of one job, and return its approximate size."""
    sent.job = completion.job
    sent.lease = completion.lease
    size = ITEM_BYTES
    if completion.follow_ups:
        size += _write_jobs(sent.follow_ups, completion.follow_ups)
    if completion.result is NOTHING:
        return size
    result = bytes(completion.result)
    sent.result = result
    if completion.result_encoding is not None:
        sent.result_encoding = completion.result_encoding
    return size + len(result)


def read_completion(sent: Any, kind: Any = Complete) -> Any:
    """Decode the completion of one job: an operation, or one of many."""
    result, follow_ups = sent.result, sent.follow_ups
    if not result and not follow_ups:
        return kind(job=sent.job, lease=sent.lease)
    return kind(
        job=sent.job,
        lease=sent.lease,
        result=Raw(result) if result else NOTHING,
        result_encoding=_encoding(sent.result_encoding),
        follow_ups=_read_jobs(follow_ups),
    )


def _write_completions(sent: Any, completions: Sequence[Completion]) -> int:
    add = sent.add
    return sum([write_completion(add(), completion) for completion in completions])


def _read_completions(sent: Any) -> tuple[Completion, ...]:
    check_count(sent, "jobs")
    return tuple([read_completion(job, Completion) for job in sent])


def _write_settled(sent: Any, jobs: Sequence[SettledJob]) -> int:
    size = 0
    for job in jobs:
        item = sent.add(job=job.job, lease=job.lease, error=job.error, give_up=not job.retry)
        if job.result is not NOTHING:
            item.result = bytes(job.result)
        if job.result_encoding is not None:
            item.result_encoding = job.result_encoding
        size += ITEM_BYTES + len(item.result) + len(job.error or "")
    return size


def _read_settled(sent: Any) -> tuple[SettledJob, ...]:
    check_count(sent, "jobs")
    return tuple(
        [
            SettledJob(
                job=item.job,
                lease=item.lease,
                result=Raw(item.result) if item.result else NOTHING,
                result_encoding=_encoding(item.result_encoding),
                error=item.error if item.HasField("error") else None,
                retry=not item.give_up,
            )
            for item in sent
        ]
    )


Writer = Callable[[Any, Any], int]
"""Fills a repeated field, and returns the approximate size of what it has added."""
Reader = Callable[[Any], Any]

NAMES: tuple[Writer, Reader] = (_write_names, read_names)
ITEMS: dict[str, tuple[Writer, Reader]] = {
    "NewJob": (_write_jobs, _read_jobs),
    "LeaseRef": (_write_leases, _read_leases),
    "JobProgress": (_write_progress, _read_progress),
    "Complete": (_write_completions, _read_completions),
    "SettledJob": (_write_settled, _read_settled),
    "TagsEntry": (_write_tags, dict),
}
"""How repeated messages are encoded and decoded, by the name of their type."""
