"""Encodes and decodes operations.

For each operation the two functions stand side by side, so that a field is added in one place.
Pushes, claims and completions come in tens of thousands each second, so these functions are written
for speed. ``batch_codec`` has those for consumers and writers.

The types of decoded values are right, or parsing would have failed. The model checks everything
else, apart from what it never sees: the number of items, and how long a claim may wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from google.protobuf.message import Message
from msgspec import Raw

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import (
    AnyOperation,
    Cancel,
    Claim,
    Complete,
    CompleteMany,
    Completion,
    Configure,
    Fail,
    Get,
    GrantToken,
    Heartbeat,
    LeaseRef,
    List,
    Pause,
    Purge,
    Push,
    ReadSnapshot,
    ReadStats,
    ReadTokens,
    Redrive,
    Release,
    ReleaseMany,
    Resume,
    RevokeToken,
    Withdraw,
)
from bucketq.model.records import NOTHING, Status
from bucketq.model.tokens import Right
from bucketq.queue.arguments import MAX_WAIT_S
from bucketq.rpc.messages import FlushArchive
from bucketq.rpc.protobuf import batch_codec
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.new_job_codec import (
    ITEM_BYTES,
    MAX_ITEMS,
    by_name,
    check_count,
    encoding,
    names,
    read_jobs,
    write_jobs,
)

_decode_changes = msgspec.json.Decoder(dict[str, Any]).decode

_Sent = Any
"""A message of one operation. The dispatch below sees to its type, which mypy cannot follow."""


def write_operation(sent: pb.Call, operation: AnyOperation) -> int:
    """Encode an operation into a call, and return its approximate size.

    Raises ``InvalidRequestError`` if that fails.
    """
    writer = _WRITERS.get(type(operation))
    if writer is None:
        message = f"{type(operation).__name__} is not an operation that clients may send"
        raise InvalidRequestError(message)
    return writer(sent, operation)


def read_operation(verb: str, sent: Message) -> Any:
    """Decode an operation, or a ``FlushArchive``. Raises ``InvalidRequestError``."""
    reader = _READERS.get(verb)
    if reader is None:
        raise unknown_operation()
    try:
        return reader(sent)
    except (OverflowError, RecursionError, msgspec.MsgspecError) as error:
        message = f"the request cannot be read: {str(error) or type(error).__name__}"
        raise InvalidRequestError(message) from error


def unknown_operation() -> InvalidRequestError:
    """Return the error for a call without an operation, or with one of a later version."""
    return InvalidRequestError("the call has no operation, or one that this broker does not know")


def _write_push(sent: pb.Call, operation: Push) -> int:
    sent.push.SetInParent()
    return write_jobs(sent.push.jobs, operation.jobs)


def _read_push(sent: pb.Push) -> Push:
    return Push(jobs=read_jobs(sent.jobs))


def _write_claim(sent: pb.Call, operation: Claim) -> int:
    claim = sent.claim
    claim.worker = operation.worker
    claim.secret = operation.secret
    claim.limit = operation.limit
    if operation.kinds:
        claim.kinds.extend(operation.kinds)
    if operation.wait_s:
        claim.wait_s = operation.wait_s
    if operation.lease_s is not None:
        claim.lease_s = operation.lease_s
    return ITEM_BYTES * (2 + len(operation.kinds))


def _read_claim(sent: pb.Claim) -> Claim:
    wait_s = sent.wait_s
    if not 0 <= wait_s <= MAX_WAIT_S:
        message = f"wait_s must be between 0 and {MAX_WAIT_S:.0f} seconds, got {wait_s}"
        raise InvalidRequestError(message)
    return Claim(
        worker=sent.worker,
        secret=sent.secret,
        kinds=names(sent.kinds),
        limit=sent.limit,
        wait_s=wait_s,
        lease_s=sent.lease_s if sent.HasField("lease_s") else None,
    )


def _write_heartbeat(sent: pb.Call, operation: Heartbeat) -> int:
    sent.heartbeat.SetInParent()
    return _fill_leases(sent.heartbeat.leases, operation.leases)


def _read_heartbeat(sent: pb.Heartbeat) -> Heartbeat:
    return Heartbeat(leases=_read_leases(sent.leases))


def _fill_leases(sent: _Sent, leases: tuple[LeaseRef, ...]) -> int:
    add = sent.add
    for lease in leases:
        held = add()
        held.job = lease.job
        held.lease = lease.lease
    return ITEM_BYTES * (1 + len(leases))


def _read_leases(sent: _Sent) -> tuple[LeaseRef, ...]:
    if len(sent) > MAX_ITEMS:
        check_count(sent, "leases")
    return tuple([LeaseRef(held.job, held.lease) for held in sent])


def _fill_completion(sent: pb.Complete, finished: Complete | Completion) -> int:
    sent.job = finished.job
    sent.lease = finished.lease
    if finished.result is NOTHING:
        return ITEM_BYTES
    result = bytes(finished.result)
    sent.result = result
    if finished.result_encoding is not None:
        sent.result_encoding = finished.result_encoding
    return ITEM_BYTES + len(result)


def _write_complete(sent: pb.Call, operation: Complete) -> int:
    return _fill_completion(sent.complete, operation)


def _read_complete(sent: pb.Complete) -> Complete:
    result = sent.result
    if not result:
        return Complete(job=sent.job, lease=sent.lease)
    return Complete(
        job=sent.job,
        lease=sent.lease,
        result=Raw(result),
        result_encoding=encoding(sent.result_encoding),
    )


def _write_completions(sent: pb.Call, operation: CompleteMany) -> int:
    sent.complete_many.SetInParent()
    add = sent.complete_many.jobs.add
    return ITEM_BYTES + sum([_fill_completion(add(), job) for job in operation.jobs])


def _read_completions(sent: pb.CompleteMany) -> CompleteMany:
    jobs = sent.jobs
    check_count(jobs, "jobs")
    return CompleteMany(
        jobs=tuple(
            [
                Completion(job=job.job, lease=job.lease)
                if not (result := job.result)
                else Completion(
                    job=job.job,
                    lease=job.lease,
                    result=Raw(result),
                    result_encoding=encoding(job.result_encoding),
                )
                for job in jobs
            ]
        )
    )


def _write_fail(sent: pb.Call, operation: Fail) -> int:
    fail = sent.fail
    fail.job = operation.job
    fail.lease = operation.lease
    fail.error = operation.error
    if not operation.retry:
        fail.give_up = True
    if operation.delay_s is not None:
        fail.delay_s = operation.delay_s
    if operation.max_attempts is not None:
        fail.max_attempts = operation.max_attempts
    return ITEM_BYTES + len(operation.error)


def _write_release(sent: pb.Call, operation: Release) -> int:
    release = sent.release
    release.job = operation.job
    release.lease = operation.lease
    if operation.delay_s:
        release.delay_s = operation.delay_s
    return ITEM_BYTES


def _write_releases(sent: pb.Call, operation: ReleaseMany) -> int:
    release = sent.release_many
    release.SetInParent()
    if operation.delay_s:
        release.delay_s = operation.delay_s
    return _fill_leases(release.leases, operation.leases)


def _read_kind(sent: pb.Pause | pb.Resume) -> str | None:
    return sent.kind if sent.HasField("kind") else None


def _read_list(sent: pb.List) -> List:
    return List(
        statuses=cast("tuple[Status, ...]", names(sent.statuses)),
        kinds=names(sent.kinds),
        tags=dict(sent.tags),
        after=sent.after,
        limit=sent.limit,
    )


def _rights(values: Any) -> tuple[Right, ...]:
    """Decode rights; the model rejects unknown ones."""
    return cast("tuple[Right, ...]", names(values))


def _write_cancel(sent: pb.Call, operation: Cancel) -> int:
    sent.cancel.job = operation.job
    return ITEM_BYTES


def _write_get(sent: pb.Call, operation: Get) -> int:
    sent.get.job = operation.job
    return ITEM_BYTES


def _write_configure(sent: pb.Call, operation: Configure) -> int:
    sent.configure.changes = msgspec.json.encode(operation.changes)
    return ITEM_BYTES + len(sent.configure.changes)


_WRITERS: dict[type, Callable[[pb.Call, Any], int]] = {
    Push: _write_push,
    Claim: _write_claim,
    Heartbeat: _write_heartbeat,
    Complete: _write_complete,
    CompleteMany: _write_completions,
    Fail: _write_fail,
    Release: _write_release,
    Withdraw: by_name("withdraw"),
    ReleaseMany: _write_releases,
    Cancel: _write_cancel,
    Redrive: by_name("redrive"),
    Purge: by_name("purge"),
    Pause: by_name("pause"),
    Resume: by_name("resume"),
    Configure: _write_configure,
    Get: _write_get,
    List: by_name("list"),
    ReadStats: by_name("stats"),
    ReadSnapshot: by_name("snapshot"),
    GrantToken: by_name("grant_token"),
    RevokeToken: by_name("revoke_token"),
    ReadTokens: by_name("tokens"),
    **batch_codec.WRITERS,
}

_READERS: dict[str, Callable[[_Sent], AnyOperation | FlushArchive]] = {
    "push": _read_push,
    "claim": _read_claim,
    "heartbeat": _read_heartbeat,
    "complete": _read_complete,
    "complete_many": _read_completions,
    "fail": lambda m: Fail(
        job=m.job,
        lease=m.lease,
        error=m.error,
        retry=not m.give_up,
        delay_s=m.delay_s if m.HasField("delay_s") else None,
        max_attempts=m.max_attempts if m.HasField("max_attempts") else None,
    ),
    "release": lambda m: Release(job=m.job, lease=m.lease, delay_s=m.delay_s),
    "withdraw": lambda m: Withdraw(session=m.session, number=m.number, secret=m.secret),
    "release_many": lambda m: ReleaseMany(leases=_read_leases(m.leases), delay_s=m.delay_s),
    "cancel": lambda m: Cancel(job=m.job),
    "redrive": lambda m: Redrive(jobs=names(m.jobs), kinds=names(m.kinds), limit=m.limit),
    "purge": lambda m: Purge(jobs=names(m.jobs), kinds=names(m.kinds), older_than_s=m.older_than_s),
    "pause": lambda m: Pause(kind=_read_kind(m)),
    "resume": lambda m: Resume(kind=_read_kind(m)),
    "configure": lambda m: Configure(changes=_decode_changes(m.changes or b"{}")),
    "get": lambda m: Get(job=m.job),
    "list": _read_list,
    "stats": lambda _: ReadStats(),
    "snapshot": lambda _: ReadSnapshot(),
    "flush_archive": lambda _: FlushArchive(),
    "grant_token": lambda m: GrantToken(
        id=m.id, name=m.name, digest=m.digest, rights=_rights(m.rights), ttl_s=m.ttl_s
    ),
    "revoke_token": lambda m: RevokeToken(id=m.id),
    "tokens": lambda _: ReadTokens(),
    **batch_codec.READERS,
}
VERBS = tuple(_READERS)
"""The name of each operation in a call, and of the field that holds it in a unary request."""
