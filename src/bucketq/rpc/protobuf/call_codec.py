"""Encodes and decodes calls, which carry an operation and its id, and the first messages."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import Request
from bucketq.rpc.messages import Call, FlushArchive, Hello, Ping, Pong, Role, Welcome
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.operation_codec import read_operation, unknown_operation, write_operation

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
            sent.flush_archive.SetInParent()
            return _BASE_BYTES
        if request.session:
            sent.session = request.session
            sent.number = request.number
            sent.acknowledged_below = request.acknowledged_below
            if request.since is not None:
                sent.since = request.since
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
    operation = read_operation(verb, getattr(sent, verb))
    ttl_ms = sent.ttl_ms
    ttl_s = ttl_ms / 1000 if ttl_ms else DEFAULT_TTL_S
    if verb == "flush_archive":
        return Call(tag, operation, ttl_s), verb
    session = sent.session
    if not session:
        return Call(tag, Request(operation), ttl_s), verb
    since = sent.since if sent.HasField("since") else None
    request = Request(operation, session, sent.number, sent.acknowledged_below, since)
    return Call(tag, request, ttl_s), verb


def read_unary(verb: str, sent: Any, ttl_s: float) -> Call:
    """Decode the request of a unary call: any message with a target, an id and an operation.

    Raises ``InvalidRequestError`` if that fails.
    """
    if not sent.HasField(verb):
        raise unknown_operation()
    operation = read_operation(verb, getattr(sent, verb))
    if verb == "flush_archive":
        return Call(0, operation, ttl_s)
    name: pb.RequestId = sent.id
    since = name.since if name.HasField("since") else None
    request = Request(operation, name.session, name.number, name.acknowledged_below, since)
    return Call(0, request, ttl_s)


def write_hello(hello: Hello) -> pb.Hello:
    """Encode the first message of a client."""
    return pb.Hello(
        queue=hello.queue,
        incarnation=hello.incarnation,
        broker=hello.broker,
        client=hello.client,
        token_id=hello.token_id,
        nonce=hello.nonce,
    )


def read_hello(sent: pb.Hello) -> Hello:
    """Decode the first message of a client."""
    return Hello(
        queue=sent.queue,
        incarnation=sent.incarnation,
        broker=sent.broker,
        client=sent.client,
        token_id=sent.token_id,
        nonce=sent.nonce,
    )


def write_welcome(welcome: Welcome) -> pb.Welcome:
    """Encode the first answer of a broker."""
    return pb.Welcome(
        incarnation=welcome.incarnation,
        broker=welcome.broker,
        epoch=welcome.epoch,
        version=welcome.version,
        proof=welcome.proof,
        operations=welcome.operations,
    )


def read_welcome(sent: pb.Welcome) -> Welcome:
    """Decode the first answer of a broker."""
    return Welcome(
        incarnation=sent.incarnation,
        broker=sent.broker,
        epoch=sent.epoch,
        version=sent.version,
        proof=sent.proof,
        operations=tuple(sent.operations),
    )


def write_ping(ping: Ping) -> pb.PingRequest:
    """Encode a ping."""
    return pb.PingRequest(queue=ping.queue, incarnation=ping.incarnation)


def read_ping(sent: pb.PingRequest) -> Ping:
    """Decode a ping."""
    return Ping(queue=sent.queue, incarnation=sent.incarnation)


def write_pong(pong: Pong) -> pb.PingResponse:
    """Encode the answer to a ping."""
    return pb.PingResponse(
        incarnation=pong.incarnation,
        broker=pong.broker,
        role=_ROLE_NUMBERS[pong.role],
        epoch=pong.epoch,
        version=pong.version,
        commit_age_s=pong.commit_age_s,
        leader=pong.leader,
    )


def read_pong(sent: pb.PingResponse) -> Pong:
    """Decode the answer to a ping. An unknown role is not that of a leader."""
    return Pong(
        incarnation=sent.incarnation,
        broker=sent.broker,
        role=_ROLES.get(sent.role, "standing by"),
        epoch=sent.epoch,
        version=sent.version,
        commit_age_s=sent.commit_age_s,
        leader=sent.leader,
    )
