"""The methods of a listener: sessions, unary calls, health checks and reflection.

Every call is counted before gRPC buffers anything that its client sends (``admission``). So every
method is registered as one that takes a stream: gRPC would read the message of a unary method
before the method is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    InvalidRequestError,
    UnavailableError,
)
from bucketq.rpc.grpc.admission import TOKEN_S, ActiveCall, Admission
from bucketq.rpc.grpc.grpc_stream import Context, ServerStream, parse
from bucketq.rpc.messages import Answer, Answers, Hello, Refusal
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.answer_codec import write_value
from bucketq.rpc.protobuf.call_codec import (
    DEFAULT_TTL_S,
    PING,
    PING_KEY,
    SERVICE,
    read_unary,
    write_pong,
)
from bucketq.rpc.protobuf.refusal_status import code_of, details_of, metadata_of
from bucketq.rpc.refusals import refusal_of
from bucketq.rpc.transport import ServedConnection, Service

_NAMES = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)

_Method = Callable[[object, Context], Awaitable[Any]]

UNARY: dict[str, tuple[Any, str]] = {
    method.name: (getattr(pb, method.input_type.name), method.input_type.fields[-1].name)
    for method in pb.DESCRIPTOR.services_by_name["Queue"].methods
    if "target" in method.input_type.fields_by_name
}
"""Each unary method, the message that it takes, and the field with the operation."""


def handlers(service: Service, admission: Admission) -> list[grpc.GenericRpcHandler[Any, Any]]:
    """Return the handlers of all methods of a listener."""
    to_one, to_many = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    queue = {
        "Session": to_many(_session(service, admission)),
        "Ping": to_one(_ping(service, admission)),
        **{name: to_one(_unary(service, admission, *shape)) for name, shape in UNARY.items()},
    }
    # Watching the health is not offered: it needs no token and never ends.
    checks = {"Check": to_one(_health(admission))}
    questions = {"ServerReflectionInfo": to_many(_reflection(admission))}
    served = zip(_NAMES, (queue, checks, questions), strict=True)
    return [grpc.method_handlers_generic_handler(name, methods) for name, methods in served]


def _session(service: Service, admission: Admission) -> _Method:
    async def serve(session: ServerStream, _context: Context) -> None:
        await session.run(service)

    return _counted(
        admission, service.trusts, serve, lambda context: ServerStream(context, admission)
    )


def _unary(service: Service, admission: Admission, shape: Any, verb: str) -> _Method:
    """Serve a verb by a connection with one call."""

    async def serve(active: ActiveCall, context: Context) -> bytes:
        request = await _only_request(active, context, shape)
        remaining_s = context.time_remaining()
        ttl_s = DEFAULT_TTL_S if remaining_s is None else remaining_s
        call = read_unary(verb, request, ttl_s)
        target: pb.Target = request.target
        hello = Hello(
            queue=target.queue,
            incarnation=target.incarnation,
            partitions=target.partitions,
            client=str(context.peer()),
            token=_token_of(context),
        )
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def take(answers: Answers) -> None:
            if answers.answers and not answered.done():
                answered.set_result(answers.answers[0])

        connection: ServedConnection = service.open(hello, take)
        try:
            admission.admit(active)
            connection.receive([call])
            answer = await active.within(ttl_s, answered)
        except TimeoutError as error:
            # A broker does not answer calls that it has dropped.
            message = f"no answer in {ttl_s:g} s: send the same request again"
            raise UnavailableError(message) from error
        finally:
            connection.close()
        if answer.refusal is not None:
            await _abort(context, answer.refusal)
        return write_value(verb, answer.value)

    return _counted(admission, service.trusts, serve)


def _ping(service: Service, admission: Admission) -> _Method:
    def answer(request: pb.PingRequest) -> bytes:
        return write_pong(service.ping(PING.read(request))).SerializeToString()

    async def serve(active: ActiveCall, context: Context) -> bytes:
        return answer(await _only_request(active, context, pb.PingRequest))

    serve_stranger = _counted(admission, _trusts_none, serve)

    async def ping(requests: object, context: Context) -> bytes:
        for key, value in context.invocation_metadata() or ():
            if key == PING_KEY and isinstance(value, bytes):
                # Nothing is buffered, so it is not counted: a ping must be answered however many
                # strangers there are.
                try:
                    return answer(parse(pb.PingRequest, value))
                except BucketQError as error:
                    await _abort(context, refusal_of(error))
        body: bytes = await serve_stranger(requests, context)
        return body

    return ping


def _health(admission: Admission) -> _Method:
    async def serve(active: ActiveCall, context: Context) -> bytes:
        request = await _only_request(active, context, health_pb2.HealthCheckRequest)
        if request.service not in {"", SERVICE}:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        status = health_pb2.HealthCheckResponse.SERVING
        body: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
        return body

    return _counted(admission, _trusts_none, serve)


def _reflection(admission: Admission) -> _Method:
    """Serve reflection for tools; a stream of questions may take a few seconds."""
    servicer = reflection.aio.ReflectionServicer(_NAMES)  # type: ignore[attr-defined]

    async def questions(context: Context) -> AsyncIterator[Any]:
        while (body := await context.read()) is not EOF:
            yield parse(reflection_pb2.ServerReflectionRequest, body)

    async def answer(context: Context) -> None:
        async for found in servicer.ServerReflectionInfo(questions(context), context):
            await context.write(found.SerializeToString())

    async def serve(active: ActiveCall, context: Context) -> None:
        await active.within(TOKEN_S, answer(context))

    return _counted(admission, _trusts_none, serve)


def _counted(
    admission: Admission,
    trusts: Callable[[str], bool],
    serve: Callable[[Any, Context], Awaitable[Any]],
    begin: Callable[[Context], ActiveCall] = lambda _context: ActiveCall(),
) -> _Method:
    """Count a call, serve it if there is room, and report errors as a status."""

    async def method(_requests: object, context: Context) -> Any:
        active = begin(context)
        try:
            is_known = trusts(_token_of(context))
            await admission.enter(active, str(context.peer()), is_known=is_known)
        except BucketQError as error:
            await _abort(context, refusal_of(error))
        try:
            return await serve(active, context)
        except BucketQError as error:
            failure = error
        except TimeoutError:
            failure = InvalidRequestError(f"the request did not arrive in {TOKEN_S:g} s")
        finally:
            admission.leave(active)
        code = "UNAUTHENTICATED" if isinstance(failure, AccessDeniedError) else ""
        return await _abort(context, refusal_of(failure), code)

    return method


async def _abort(context: Context, refusal: Refusal, code: str = "") -> NoReturn:
    """End a call or a stream with the status of a refusal."""
    status = grpc.StatusCode[code or code_of(refusal)]
    await context.abort(status, details_of(refusal), metadata_of(refusal))
    raise AssertionError("abort always raises")


def _trusts_none(_token: str) -> bool:
    return False


async def _only_request(active: ActiveCall, context: Context, shape: Any) -> Any:
    """Read the message of a unary call. Raises ``TimeoutError`` if it takes too long."""
    body = await active.within(TOKEN_S, context.read())
    if body is EOF:
        message = "the call ended without its request"
        raise InvalidRequestError(message)
    return parse(shape, body)


def _token_of(context: Context) -> str:
    """Return the token in the metadata of a call: ``authorization: Bearer <token>``."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer":
                return token.strip()
    return ""
