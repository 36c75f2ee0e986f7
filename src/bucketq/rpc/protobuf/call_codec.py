"""Encodes and decodes calls, which carry an operation and its id, and the first messages."""

from __future__ import annotations

from typing import Any

import msgspec
from google.protobuf.message import Message
from msgspec import structs

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import Request
from bucketq.rpc.messages import Call, FlushArchive, Hello, Ping, Pong, Role, Welcome
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.operation_codec import read_operation, unknown_operation, write_operation
from bucketq.rpc.protobuf.struct_codec import StructCodec

SERVICE = "bucketq.v1.Queue"
PING_KEY = "bucketq-ping-bin"
"""The metadata in which a ping may carry its request."""
DEFAULT_TTL_S = 60.0
"""How long a call may wait that sets no limit; documented in ``bucketq.proto``."""
_MAX_TTL_MS = 2**32 - 1
_BASE_BYTES = 80
"""About the size of a call without its operation."""

_UNWRITABLE = (
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    msgspec.MsgspecError,
)
"""What encoding raises for a value that does not fit a message: a number too large, bad text."""

Calls = Any
"""The ``calls`` of a message, looked up once: that costs as much as setting three fields."""

_ROLES: dict[pb.Role, Role] = {
    pb.ROLE_LEADING: "leading",
    pb.ROLE_CUT_OFF: "cut off",
    pb.ROLE_STANDING_BY: "standing by",
    pb.ROLE_RETIRED: "retired",
}
_ROLE_NUMBERS = {role: number for number, role in _ROLES.items()}


def write_call(calls: Calls, call: Call) -> int:
    """Append a call to a message, and return its approximate size.

    Raises ``InvalidRequestError`` if it cannot be encoded; the message is unchanged then.
    """
    sent = calls.add()
    try:
        sent.tag = call.tag
        ttl_ms = int(call.ttl_s * 1000)
        sent.ttl_ms = ttl_ms if 0 < ttl_ms < _MAX_TTL_MS else _MAX_TTL_MS if ttl_ms > 0 else 1
        request: Any = call.request
        if type(request) is FlushArchive:
            return _BASE_BYTES + write_operation(sent, request)
        if request.session:
            sent.session = request.session
            sent.number = request.number
            sent.acknowledged_below = request.acknowledged_below
            if request.since is not None:
                sent.since = request.since
            if request.numbers:
                sent.numbers.extend(request.numbers)
                sent.counts.extend(request.counts)
        return _BASE_BYTES + write_operation(sent, request.operation)
    except InvalidRequestError:
        del calls[-1]
        raise
    except _UNWRITABLE as error:
        del calls[-1]
        message = f"the request cannot be sent: {str(error) or type(error).__name__}"
        raise InvalidRequestError(message) from error


def read_call(sent: pb.Call, tag: int) -> tuple[Call, str]:
    """Decode a call of a session, and its verb.

    Raises ``InvalidRequestError`` if that fails.
    """
    verb = sent.WhichOneof("operation")
    if verb is None:
        raise unknown_operation()
    ttl_ms = sent.ttl_ms
    request = _read_request(verb, getattr(sent, verb), sent)
    if (sent.numbers or sent.counts) and isinstance(request, Request):
        request = structs.replace(request, numbers=tuple(sent.numbers), counts=tuple(sent.counts))
    return Call(tag, request, ttl_ms / 1000 if ttl_ms else DEFAULT_TTL_S), verb


def read_unary(verb: str, sent: Any, ttl_s: float) -> Call:
    """Decode the request of a unary call: any message with a target, an id and an operation.

    Raises ``InvalidRequestError`` if that fails.
    """
    if not sent.HasField(verb):
        raise unknown_operation()
    return Call(0, _read_request(verb, getattr(sent, verb), sent.id), ttl_s)


def _read_request(
    verb: str, body: Message, sent_id: pb.Call | pb.RequestId
) -> Request | FlushArchive:
    operation: Any = read_operation(verb, body)
    session = sent_id.session
    if not session or verb == "flush_archive":
        return operation if verb == "flush_archive" else Request(operation)
    since = sent_id.since if sent_id.HasField("since") else None
    return Request(operation, session, sent_id.number, sent_id.acknowledged_below, since)


HELLO = StructCodec(Hello, pb.Hello)
WELCOME = StructCodec(Welcome, pb.Welcome)
PING = StructCodec(Ping, pb.PingRequest)


def write_pong(pong: Pong) -> pb.PingResponse:
    """Encode the answer to a ping."""
    return pb.PingResponse(**structs.asdict(pong) | {"role": _ROLE_NUMBERS[pong.role]})


def read_pong(sent: pb.PingResponse) -> Pong:
    """Decode the answer to a ping. An unknown role is not that of a leader."""
    fields = {field.name: getattr(sent, field.name) for field in sent.DESCRIPTOR.fields}
    return Pong(**fields | {"role": _ROLES.get(sent.role, "standing by")})
