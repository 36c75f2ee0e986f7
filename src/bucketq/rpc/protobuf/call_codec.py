"""Calls and greetings to protobuf and back: an operation with all that goes along with it."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import Request
from bucketq.rpc.messages import Call, FlushArchive, Hello, Ping, Pong, Role, Welcome
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.operation_codec import read_operation, unknown_operation, write_operation

DEFAULT_TTL_S = 60.0
"""For how long a call may wait that does not say so itself."""
_MAX_TTL_MS = 2**32 - 1
_BASE_BYTES = 80
"""About what a call takes beside its operation."""

_UNWRITABLE = (
    AttributeError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    msgspec.MsgspecError,
)
"""What a value raises that no message can hold: a number too large, text that is none."""

Calls = Any
"""The ``calls`` of a message: looked up once, for that costs as much as writing three fields."""

_ROLES: dict[pb.Role, Role] = {
    pb.ROLE_LEADING: "leading",
    pb.ROLE_CUT_OFF: "cut off",
    pb.ROLE_STANDING_BY: "standing by",
    pb.ROLE_RETIRED: "retired",
}
_ROLE_NUMBERS = {role: number for number, role in _ROLES.items()}


def write_call(calls: Calls, call: Call) -> int:
    """Add a call to those of a message, and return about how many bytes it takes there.

    Raises ``InvalidRequestError`` where it cannot be written; the message is then as it was.
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
    """Read a call of a session, and the verb whose answer it wants.

    Raises ``InvalidRequestError`` where that cannot be done.
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
    """Read the request of a unary call: any of the messages with a target, an id and an operation.

    Raises ``InvalidRequestError`` where that cannot be done.
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
    """Write the beginning of a connection."""
    return pb.Hello(
        queue=hello.queue,
        incarnation=hello.incarnation,
        broker=hello.broker,
        client=hello.client,
        token_id=hello.token_id,
        nonce=hello.nonce,
    )


def read_hello(sent: pb.Hello) -> Hello:
    """Read the beginning of a connection."""
    return Hello(
        queue=sent.queue,
        incarnation=sent.incarnation,
        broker=sent.broker,
        client=sent.client,
        token_id=sent.token_id,
        nonce=sent.nonce,
    )


def write_welcome(welcome: Welcome) -> pb.Welcome:
    """Write what a broker says first."""
    return pb.Welcome(
        incarnation=welcome.incarnation,
        broker=welcome.broker,
        epoch=welcome.epoch,
        version=welcome.version,
        proof=welcome.proof,
        operations=welcome.operations,
    )


def read_welcome(sent: pb.Welcome) -> Welcome:
    """Read what a broker says first."""
    return Welcome(
        incarnation=sent.incarnation,
        broker=sent.broker,
        epoch=sent.epoch,
        version=sent.version,
        proof=sent.proof,
        operations=tuple(sent.operations),
    )


def write_ping(ping: Ping) -> pb.PingRequest:
    """Write a ping."""
    return pb.PingRequest(queue=ping.queue, incarnation=ping.incarnation)


def read_ping(sent: pb.PingRequest) -> Ping:
    """Read a ping."""
    return Ping(queue=sent.queue, incarnation=sent.incarnation)


def write_pong(pong: Pong) -> pb.PingResponse:
    """Write the answer to a ping."""
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
    """Read the answer to a ping. A role that this side does not know is not that of a leader."""
    return Pong(
        incarnation=sent.incarnation,
        broker=sent.broker,
        role=_ROLES.get(sent.role, "standing by"),
        epoch=sent.epoch,
        version=sent.version,
        commit_age_s=sent.commit_age_s,
        leader=sent.leader,
    )
