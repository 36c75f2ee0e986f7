"""Encodes and decodes operations.

An operation and its message have the same name and the same fields, so most of them need no code of
their own. The exceptions stand below, each encoder beside its decoder.

The types of decoded values are right, or parsing would have failed. The model checks everything
else, apart from what it never sees: the number of items, and how long a claim may wait.
"""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.message import Message

from bucketq.errors import InvalidRequestError
from bucketq.model.job_batches import OpenBatch
from bucketq.model.operations import AnyOperation, Claim, Complete, Configure, Fail
from bucketq.model.schedules import SetSchedule
from bucketq.model.side_objects import PutPart
from bucketq.queue.arguments import MAX_WAIT_S
from bucketq.rpc.messages import OFFERED, FlushArchive
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.column_codec import WITH_COLUMNS
from bucketq.rpc.protobuf.item_codec import (
    ITEM_BYTES,
    Reader,
    Writer,
    read_completion,
    read_job,
    read_names,
    write_completion,
    write_job,
)
from bucketq.rpc.protobuf.struct_codec import StructCodec

_decode_changes = msgspec.json.Decoder(dict[str, Any]).decode


def write_operation(sent: pb.Call, operation: AnyOperation | FlushArchive) -> int:
    """Encode an operation into a call, and return its approximate size.

    Raises ``InvalidRequestError`` if that fails.
    """
    kind = type(operation)
    writer = _WRITERS.get(kind)
    if writer is None:
        message = f"{kind.__name__} is not an operation that clients may send"
        raise InvalidRequestError(message)
    verb, write = writer
    return write(getattr(sent, verb), operation)


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


def _write_claim(sent: pb.Claim, operation: Claim) -> int:
    sent.worker = operation.worker
    sent.secret = operation.secret
    sent.limit = operation.limit
    if operation.kinds:
        sent.kinds.extend(operation.kinds)
    if operation.wait_s:
        sent.wait_s = operation.wait_s
    if operation.lease_s is not None:
        sent.lease_s = operation.lease_s
    return ITEM_BYTES * (2 + len(operation.kinds))


def _read_claim(sent: pb.Claim) -> Claim:
    wait_s = sent.wait_s
    if not 0 <= wait_s <= MAX_WAIT_S:
        message = f"wait_s must be between 0 and {MAX_WAIT_S:.0f} seconds, got {wait_s}"
        raise InvalidRequestError(message)
    return Claim(
        worker=sent.worker,
        secret=sent.secret,
        kinds=read_names(sent.kinds),
        limit=sent.limit,
        wait_s=wait_s,
        lease_s=sent.lease_s if sent.HasField("lease_s") else None,
    )


def _write_fail(sent: pb.Fail, operation: Fail) -> int:
    sent.job = operation.job
    sent.lease = operation.lease
    sent.error = operation.error
    if not operation.retry:
        sent.give_up = True
    if operation.delay_s is not None:
        sent.delay_s = operation.delay_s
    if operation.max_attempts is not None:
        sent.max_attempts = operation.max_attempts
    if operation.snooze:
        sent.snooze = True
    return ITEM_BYTES + len(operation.error)


def _read_fail(sent: pb.Fail) -> Fail:
    return Fail(
        job=sent.job,
        lease=sent.lease,
        error=sent.error,
        retry=not sent.give_up,
        delay_s=sent.delay_s if sent.HasField("delay_s") else None,
        max_attempts=sent.max_attempts if sent.HasField("max_attempts") else None,
        snooze=sent.snooze,
    )


def _write_configure(sent: pb.Configure, operation: Configure) -> int:
    sent.changes = msgspec.json.encode(operation.changes)
    return ITEM_BYTES + len(sent.changes)


def _read_configure(sent: pb.Configure) -> Configure:
    return Configure(changes=_decode_changes(sent.changes or b"{}"))


def _write_schedule(sent: pb.SetSchedule, operation: SetSchedule) -> int:
    for name in _SCHEDULE_FIELDS:
        setattr(sent, name, getattr(operation, name))
    return ITEM_BYTES + write_job(sent.job, operation.job)


def _read_schedule(sent: pb.SetSchedule) -> SetSchedule:
    fields = {name: getattr(sent, name) for name in _SCHEDULE_FIELDS}
    # Clients may leave out what has a default.
    given = {name: value for name, value in fields.items() if value or name == "schedule"}
    return SetSchedule(job=read_job(sent.job), **given)


def _write_open_batch(sent: pb.OpenBatch, operation: OpenBatch) -> int:
    sent.batch = operation.batch
    if operation.on_done is None:
        return ITEM_BYTES
    return ITEM_BYTES + write_job(sent.on_done, operation.on_done)


def _read_open_batch(sent: pb.OpenBatch) -> OpenBatch:
    on_done = read_job(sent.on_done) if sent.HasField("on_done") else None
    return OpenBatch(batch=sent.batch, on_done=on_done)


def _write_part(sent: pb.PutPart, operation: PutPart) -> int:
    return _PUT_PART.write(sent, operation) + len(operation.data)


_PUT_PART = StructCodec(PutPart, pb.PutPart)
_SCHEDULE_FIELDS = tuple(name for name in SetSchedule.__struct_fields__ if name != "job")
_OWN_CODECS: dict[type, tuple[Writer, Reader]] = {
    **WITH_COLUMNS,
    Claim: (_write_claim, _read_claim),
    Complete: (write_completion, read_completion),
    Fail: (_write_fail, _read_fail),
    Configure: (_write_configure, _read_configure),
    SetSchedule: (_write_schedule, _read_schedule),
    PutPart: (_write_part, _PUT_PART.read),
    OpenBatch: (_write_open_batch, _read_open_batch),
}
_WRITERS: dict[type, tuple[str, Writer]] = {}
_READERS: dict[str, Reader] = {}

for _operation in (*OFFERED, FlushArchive):
    _shape = getattr(pb, _operation.__name__)
    _codec = StructCodec[Any](_operation, _shape)
    _write, _read = _OWN_CODECS.get(_operation, (_codec.write, _codec.read))
    _fields = pb.Call.DESCRIPTOR.oneofs_by_name["operation"].fields
    _verb = next(field.name for field in _fields if field.message_type is _shape.DESCRIPTOR)
    _WRITERS[_operation], _READERS[_verb] = (_verb, _write), _read

VERBS = tuple(_READERS)
"""The name of each operation in a call, and of the field that holds it in a unary request."""
