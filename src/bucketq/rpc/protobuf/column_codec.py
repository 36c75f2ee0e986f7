"""Encodes and decodes many jobs without options by columns: all ids, then all kinds, and so on.

A message for each job costs several times as much, nearly all of it for the objects that stand for
it in Python. Older brokers read messages only, so a client sends columns to those that name
``columns`` in their welcome, and makes others of ``PlainJobs`` and ``PlainCompletions`` before.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, ne
from sys import intern
from typing import Any

from msgspec import Raw

from bucketq.errors import InvalidRequestError
from bucketq.model.base import NewJob
from bucketq.model.operations import CompleteMany, Completion, Push
from bucketq.model.records import NOTHING
from bucketq.model.requests.plain_jobs import PlainCompletions, PlainJobs
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.item_codec import ITEM_BYTES, ITEMS, check_count

_write_jobs, _read_jobs = ITEMS["NewJob"]
_write_completions, _read_completions = ITEMS["Complete"]

_id, _kind, _payload = attrgetter("id"), attrgetter("kind"), attrgetter("payload")
_job, _lease, _result = attrgetter("job"), attrgetter("lease"), attrgetter("result")


def write_push(sent: pb.Push, operation: Push) -> int:
    """Encode a push, and return its approximate size."""
    jobs = operation.jobs
    if not isinstance(jobs, PlainJobs) or not jobs:
        sent.SetInParent()
        return ITEM_BYTES + _write_jobs(sent.jobs, jobs)
    plain, payloads, kinds = sent.plain, [*map(bytes, map(_payload, jobs))], [*map(_kind, jobs)]
    plain.ids.extend(map(_id, jobs))
    plain.kinds.extend(kinds if any(map(ne, kinds, kinds[1:])) else kinds[:1])
    plain.payloads.extend(payloads)
    return sum(map(len, payloads)) + ITEM_BYTES * (1 + len(jobs))


def read_push(sent: pb.Push) -> Push:
    """Decode a push."""
    if not sent.HasField("plain"):
        return Push(jobs=_read_jobs(sent.jobs))
    ids, kinds, payloads = sent.plain.ids, sent.plain.kinds, sent.plain.payloads
    _check_columns(sent.jobs, ids, payloads, *([kinds] if len(kinds) != 1 else []))
    # A queue holds the name of a kind once, and not once for each job.
    names = [*map(intern, kinds)]
    if len(names) == 1:
        names *= len(ids)
    columns = zip(ids, names, map(Raw, payloads), strict=True)
    return Push(jobs=PlainJobs([NewJob(id=i, kind=kind, payload=raw) for i, kind, raw in columns]))


def write_complete_many(sent: pb.CompleteMany, operation: CompleteMany) -> int:
    """Encode completions, and return their approximate size."""
    jobs = operation.jobs
    if not isinstance(jobs, PlainCompletions) or not jobs:
        sent.SetInParent()
        return ITEM_BYTES + _write_completions(sent.jobs, jobs)
    plain, results = sent.plain, [*map(bytes, map(_result, jobs))]
    plain.jobs.extend(map(_job, jobs))
    plain.leases.extend(map(_lease, jobs))
    if any(results):
        plain.results.extend(results)
    return sum(map(len, results)) + ITEM_BYTES * (1 + len(jobs))


def read_complete_many(sent: pb.CompleteMany) -> CompleteMany:
    """Decode completions."""
    if not sent.HasField("plain"):
        return CompleteMany(jobs=_read_completions(sent.jobs))
    jobs, leases, results = sent.plain.jobs, sent.plain.leases, sent.plain.results
    _check_columns(sent.jobs, jobs, leases, *([results] if results else []))
    raws = [Raw(result) if result else NOTHING for result in results] or [NOTHING] * len(jobs)
    columns = zip(jobs, leases, raws, strict=True)
    done = [Completion(job=job, lease=lease, result=raw) for job, lease, raw in columns]
    return CompleteMany(jobs=PlainCompletions(done))


def _check_columns(
    items: Sequence[object], first: Sequence[object], *more: Sequence[object]
) -> None:
    check_count(first, "jobs")  # Before anything is made of them.
    if items:
        message = "the jobs of a request come as `jobs` or as `plain`, not both"
        raise InvalidRequestError(message)
    if any(len(column) != len(first) for column in more):
        lengths = ", ".join(str(len(column)) for column in (first, *more))
        message = f"the columns of `plain` have different lengths: {lengths}"
        raise InvalidRequestError(message)


WITH_COLUMNS: dict[type, tuple[Any, Any]] = {
    Push: (write_push, read_push),
    CompleteMany: (write_complete_many, read_complete_many),
}
"""How operations are encoded and decoded whose jobs may come by columns."""
