"""Encodes refusals as gRPC statuses, for unary calls and for streams that are rejected.

A client in any language can act on the status code. Trailing metadata names the error, so that a
client that knows it can raise the same class. ``bucketq.proto`` has the table.
"""

from __future__ import annotations

from collections.abc import Iterable

from bucketq import errors
from bucketq.rpc.messages import Refusal
from bucketq.rpc.protobuf.answer_codec import to_ms
from bucketq.rpc.refusals import kind_of

ERROR = "bucketq-error"
RETRY_AFTER = "bucketq-retry-after-ms"
LEADER = "bucketq-leader"
_MAX_DETAILS_BYTES = 1500
"""A status is sent in a header, in which some bytes are escaped as three. Peers accept a few KiB of
headers."""

# The first match counts: a lost lease is reported as such, whether or not the job still exists.
_CODES: tuple[tuple[type[errors.BucketQError], str], ...] = (
    (errors.LeaseLostError, "FAILED_PRECONDITION"),
    (errors.InvalidRequestError, "INVALID_ARGUMENT"),
    (errors.PayloadTooLargeError, "INVALID_ARGUMENT"),
    (errors.JobNotFoundError, "NOT_FOUND"),
    (errors.QueueNotFoundError, "NOT_FOUND"),
    (errors.ScheduleNotFoundError, "NOT_FOUND"),
    (errors.BatchNotFoundError, "NOT_FOUND"),
    (errors.WorkerNotFoundError, "NOT_FOUND"),
    (errors.QueueFullError, "RESOURCE_EXHAUSTED"),
    (errors.OverloadedError, "RESOURCE_EXHAUSTED"),
    (errors.KeyConflictError, "ALREADY_EXISTS"),
    (errors.AccessDeniedError, "PERMISSION_DENIED"),
    (errors.SupersededError, "ABORTED"),
    (errors.CorruptStateError, "DATA_LOSS"),
    (errors.RejectedError, "FAILED_PRECONDITION"),
)


def code_of(refusal: Refusal) -> str:
    """Return the name of the status code for a refusal."""
    kind = kind_of(refusal)
    return next((code for error, code in _CODES if issubclass(kind, error)), "UNAVAILABLE")


def details_of(refusal: Refusal) -> str:
    """Return the message, cut to what a header may hold."""
    raw = refusal.message.encode(errors="replace")
    if len(raw) <= _MAX_DETAILS_BYTES:
        return raw.decode()
    return raw[:_MAX_DETAILS_BYTES].decode(errors="ignore") + "..."


def metadata_of(refusal: Refusal) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of a refusal."""
    metadata = [(ERROR, refusal.kind)]
    if refusal.retry_after_s is not None:
        metadata.append((RETRY_AFTER, str(to_ms(refusal.retry_after_s))))
    if refusal.leader is not None and refusal.leader.isascii() and refusal.leader.isprintable():
        metadata.append((LEADER, refusal.leader))
    return tuple(metadata)


def read_refusal(details: str, metadata: Iterable[tuple[str, str | bytes]]) -> Refusal | None:
    """Decode a refusal from a status; None: the status is not from bucketq."""
    found = {key: value for key, value in metadata if isinstance(value, str)}
    if ERROR not in found:
        return None
    after_ms = found.get(RETRY_AFTER, "")
    return Refusal(
        kind=found[ERROR],
        message=details,
        retry_after_s=int(after_ms) / 1000 if after_ms.isdecimal() else None,
        leader=found.get(LEADER),
    )
