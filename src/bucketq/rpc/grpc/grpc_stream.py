"""The broker's side of one session: a stream of calls in, a stream of answers out.

It has two tasks, one that reads and one that writes. Answers collect while a message is being
written and go out together in the next, so that the busier the broker, the fewer messages it needs.
A client that does not read its answers is not listened to either: the reader stops until the writer
has caught up, and flow control does the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs

from bucketq.errors import (
    AccessDeniedError,
    BucketQError,
    InvalidRequestError,
    OverloadedError,
    PayloadTooLargeError,
    UnavailableError,
)
from bucketq.model.numbered_batches import BatchPage
from bucketq.model.operations import Page, Snapshot
from bucketq.rpc.grpc import admission
from bucketq.rpc.grpc.admission import ActiveCall, Admission, stopping
from bucketq.rpc.messages import Answer, Answers, Call, Refusal
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.answer_codec import write_answer
from bucketq.rpc.protobuf.call_codec import read_call, read_hello, write_welcome
from bucketq.rpc.protobuf.refusal_status import code_of, details_of, metadata_of
from bucketq.rpc.refusals import refusal_of
from bucketq.rpc.transport import ServedConnection, Service

MIB = 1024 * 1024
MAX_MESSAGE_BYTES = 16 * MIB
"""The largest message that a broker takes. gRPC buffers as much for every client that begins to
send one, also before it has shown a token, so it cannot be as large as a request. Older clients
send each message in one piece: 8 MiB of calls, and one call more."""
MAX_REQUEST_BYTES = 128 * MIB
"""The largest request, which comes in parts; only clients that may be here can send it."""
MAX_RESPONSE_BYTES = 1024 * MIB
"""The largest answer that a client takes."""
NO_COMPRESSION = ("grpc.compression_enabled_algorithms_bitset", 1)
"""Only messages as they are: gRPC unpacks a compressed one up to the largest that is allowed before
it refuses it, so that a megabyte on the way would cost a hundred here, on every stream."""
MAX_CALLS = 20_000
"""How many calls one message may bring."""
_MESSAGE_ANSWERS = 125
_MESSAGE_BYTES = 4 * MIB
_MAX_WAITING_ANSWERS = 20_000
"""With so many unread, no more calls of this client are read."""
_MAX_WAITING_ROWS = 100_000
"""The same for the jobs in its answers: ten of the longest lists of the default settings."""
_WITH_JOBS = (Page, Snapshot, BatchPage)
_SLICE = 2000
"""How many calls are read before other work gets its turn: those of one message of our clients."""
_RETRY_AFTER_S = 1.0
_MANY = 4096
_EARLY_CALLS = 100
"""A client that sends more before it has shown its token is sent away: answers cost memory."""
_LATE_S = 60.0
"""How long an answer is still passed on after its client said it would wait no more."""

Context = Any
"""A ``ServicerContext`` over bytes; the stubs know no bytes."""
_log = logging.getLogger(__name__)


class ServerStream(ActiveCall):
    """One stream: calls in, answers out."""

    def __init__(self, context: Context, admission: Admission) -> None:
        """Take a stream on which nothing was said yet."""
        super().__init__()
        self._context = context
        self._admission = admission
        self._connection: ServedConnection | None = None
        self._asked: dict[int, tuple[str, float]] = {}
        """The verb of each tag that has no answer yet, and until when one is waited for."""
        self._sweep_at = _MANY
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._waiting: deque[tuple[Answer, str]] = deque()
        self._rows = 0
        """How many jobs are in the answers that wait."""
        self._version = 0
        self._shows_life = False
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._finishing = False
        self._is_greeted = False

    def finish(self) -> None:
        """End it when nothing is under way any more."""
        self._finishing = True
        self._wake.set()

    async def run(self, service: Service) -> None:
        """Serve the stream until either side ends it."""
        try:
            failure = await self._serve(service)
        finally:
            if self._connection is not None:
                self._connection.close()
            self._drop_parts()
        if failure is not None:
            await turn_away(self._context, failure)

    async def _serve(self, service: Service) -> Exception | None:
        """Serve the stream, and return why that ended; None: the client wanted it."""
        try:
            connection = await self.within(admission.TOKEN_S, self._introduce(service))
        except BucketQError as error:
            return error
        except TimeoutError:
            return self._too_slow()
        return None if connection is None else await self._converse(connection)

    async def _introduce(self, service: Service) -> ServedConnection | None:
        """Exchange greetings until the client may be here; None: it has left.

        Until then it says hello and shows its token, and nothing else is taken from it.
        """
        request = await self._next_request()
        if request is None:
            return None
        if not request.HasField("hello"):
            message = "the first message of a session must carry `hello`"
            raise InvalidRequestError(message)
        # Kept at once: if the client hangs up as this ends, nothing else would know it.
        connection = self._connection = service.open(read_hello(request.hello), self._collect)
        welcome = pb.SessionResponse(welcome=write_welcome(connection.welcome))
        await self._context.write(welcome.SerializeToString())
        self._is_greeted = True
        while True:
            if request.token:
                connection.show(request.token)
            if connection.is_admitted:
                break
            await self._refuse_early(request.calls)
            request = await self._next_request()
            if request is None:
                return None
        self._admission.admit(self)
        await self._hand_over(connection, request.calls)
        return connection

    async def _next_request(self) -> pb.SessionRequest | None:
        """Read a message; None: the client sends no more."""
        body = await self._context.read()
        return None if body is EOF else parse(pb.SessionRequest, body)

    async def _refuse_early(self, calls: Sequence[pb.Call]) -> None:
        """Answer calls that come before the token."""
        if calls:
            error = AccessDeniedError("the queue asks for a token: show it before the first call")
            if len(calls) > _EARLY_CALLS:
                raise error
            self._waiting.extend((Answer(call.tag, None, refusal_of(error)), "") for call in calls)
            await self._context.write(self._next_message())

    def _too_slow(self) -> BucketQError:
        wait = f"in {admission.TOKEN_S:g} s"
        if self._is_greeted:
            return UnavailableError(f"the queue asks for a token, and none came {wait}: try again")
        message = f"a session begins with a message that carries `hello`; none came {wait}"
        return InvalidRequestError(message)

    async def _converse(self, connection: ServedConnection) -> Exception | None:
        """Read and write until that ends, and return why it did; None: the client wanted it."""
        loop = asyncio.get_running_loop()
        reading = loop.create_task(self._read(connection))
        writing = loop.create_task(self._write())
        try:
            ends: list[asyncio.Future[Any]] = [reading, writing, self.stopped]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            writing.cancel()
            ended = await asyncio.gather(reading, writing, return_exceptions=True)
        if self._context.done():
            return None
        failure = next((end for end in ended if isinstance(end, Exception)), None)
        if failure is not None and not isinstance(failure, BucketQError):
            _log.error("a session failed", exc_info=failure)
        if failure is None and self.stopped.done():
            failure = self.stopped.result()
        if failure is None and self._finishing:
            failure = stopping()
        return failure

    async def _read(self, connection: ServedConnection) -> None:
        while True:
            request = await self._next_request()
            if request is None:
                return
            await self._take_in(connection, request)
            while self._is_behind:
                self._caught_up.clear()
                await self._caught_up.wait()

    @property
    def _is_behind(self) -> bool:
        """Whether the client has left too much unread."""
        return len(self._waiting) > _MAX_WAITING_ANSWERS or self._rows > _MAX_WAITING_ROWS

    async def _take_in(self, connection: ServedConnection, request: pb.SessionRequest) -> None:
        """Take the token that a message may bring, and then its calls."""
        if request.HasField("part"):
            self._keep_part(request.part)
            if request.more:
                return
            body = b"".join(self._parts)
            self._drop_parts()
            request = parse(pb.SessionRequest, body)
        if request.token:
            connection.show(request.token)
        await self._hand_over(connection, request.calls)

    def _keep_part(self, part: bytes) -> None:
        size_bytes = self._parts_bytes + len(part)
        if size_bytes > MAX_REQUEST_BYTES:
            message = (
                f"a request has {size_bytes:,} bytes or more, {MAX_REQUEST_BYTES:,} are allowed: "
                "send several"
            )
            raise PayloadTooLargeError(message)
        self._admission.keep_part(len(part))
        self._parts.append(part)
        self._parts_bytes = size_bytes

    def _drop_parts(self) -> None:
        self._admission.drop_parts(self._parts_bytes)
        self._parts, self._parts_bytes = [], 0

    async def _hand_over(self, connection: ServedConnection, sent: Sequence[pb.Call]) -> None:
        """Give the broker the calls of a message, some at a time."""
        for start in range(0, len(sent), _SLICE):
            if start:
                await asyncio.sleep(0)
            self._hand_over_some(connection, sent[start : start + _SLICE], start)

    def _hand_over_some(
        self, connection: ServedConnection, sent: Iterable[pb.Call], start: int
    ) -> None:
        """Give the broker the calls that can be read; the others are answered here."""
        asked, calls = self._asked, list[Call]()
        now_s = asyncio.get_running_loop().time()
        if len(asked) > self._sweep_at:
            self._forget(now_s - _LATE_S)
        for index, item in enumerate(sent, start):
            tag = item.tag
            try:
                if index >= MAX_CALLS or tag in asked:
                    _refuse_call(index, tag)
                call, verb = read_call(item, tag)
            except BucketQError as error:
                self._waiting.append((Answer(tag, None, refusal_of(error)), ""))
                self._wake.set()
                continue
            asked[tag] = (verb, now_s + call.ttl_s)
            calls.append(call)
        if calls:
            connection.receive(calls)

    def _collect(self, answers: Answers) -> None:
        """Take answers for the next message; none at all are a sign of life, and sent as such.

        A second answer to one call goes nowhere.
        """
        pop, append = self._asked.pop, self._waiting.append
        for answer in answers.answers:
            known = pop(answer.tag, None)
            if known is not None:
                append((answer, known[0]))
                self._rows += _rows_of(answer)
        self._shows_life = True
        self._version = max(self._version, answers.version)
        self._wake.set()

    def _forget(self, before_s: float) -> None:
        """Forget calls for which nobody waits any more: a broker does not answer all of them."""
        late = [tag for tag, (_, until_s) in self._asked.items() if until_s < before_s]
        for tag in late:
            del self._asked[tag]
        self._sweep_at = max(_MANY, 2 * len(self._asked))

    async def _write(self) -> None:
        while True:
            while self._waiting or self._shows_life:
                await self._context.write(self._next_message())
                if not self._is_behind:
                    self._caught_up.set()
            if self._finishing:
                self._forget(asyncio.get_running_loop().time())
                if not self._asked:
                    return
            self._wake.clear()
            await self._wake.wait()

    def _next_message(self) -> bytes:
        waiting = self._waiting
        self._shows_life = False
        message = pb.SessionResponse(version=self._version)
        answers = message.answers
        size = count = 0
        while waiting and count < _MESSAGE_ANSWERS and size < _MESSAGE_BYTES:
            answer, verb = waiting.popleft()
            self._rows -= _rows_of(answer)
            added = write_answer(answers, answer, verb)
            if added > MAX_RESPONSE_BYTES:
                del answers[-1]
                write_answer(answers, Answer(answer.tag, None, _too_large(added)), verb)
                added = 0
            size += added
            count += 1
        return message.SerializeToString()


def _rows_of(answer: Answer) -> int:
    """How many jobs an answer to a read has."""
    value = answer.value
    return len(value.jobs) if isinstance(value, _WITH_JOBS) else 0


def _refuse_call(index: int, tag: int) -> NoReturn:
    if index >= MAX_CALLS:
        message = f"more than {MAX_CALLS:,} calls in one message: send several"
        raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
    message = f"tag {tag} belongs to a call that is still waiting for its answer"
    raise InvalidRequestError(message)


def _too_large(size_bytes: int) -> Refusal:
    message = (
        f"the answer has {size_bytes:,} bytes, {MAX_RESPONSE_BYTES:,} fit in one message: ask for "
        "fewer jobs at once"
    )
    return refusal_of(PayloadTooLargeError(message))


async def abort(context: Context, refusal: Refusal, code: str = "") -> NoReturn:
    """End a call or a stream with the status that stands for a refusal."""
    status = grpc.StatusCode[code or code_of(refusal)]
    await context.abort(status, details_of(refusal), metadata_of(refusal))
    raise AssertionError("abort always raises")


async def turn_away(context: Context, error: Exception) -> NoReturn:
    """End what has not begun; whoever has shown no good token is not known here at all."""
    code = "UNAUTHENTICATED" if isinstance(error, AccessDeniedError) else ""
    await abort(context, refusal_of(error), code)


def parse(shape: Any, body: bytes) -> Any:
    """Read a message. Raises ``InvalidRequestError`` where the bytes are none."""
    try:
        return shape.FromString(body)
    except DecodeError as error:
        message = f"the message is no {shape.DESCRIPTOR.full_name}: {error}"
        raise InvalidRequestError(message) from error
