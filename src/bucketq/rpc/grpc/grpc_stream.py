"""The broker's side of one session: a stream of calls in, a stream of answers out.

One task reads and one writes. Answers collect while a message is being written and are sent
together in the next, so that a busy broker sends fewer messages. If a client does not read its
answers, the reader stops until the writer has caught up (backpressure), and HTTP/2 flow control
stops the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

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
from bucketq.model.history import ChangePage, CopyPart
from bucketq.model.numbered_batches import BatchPage
from bucketq.model.operations import Page, Snapshot
from bucketq.rpc.grpc import admission
from bucketq.rpc.grpc.admission import ActiveCall, Admission, stopping
from bucketq.rpc.messages import Answer, Answers, Call, Refusal
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.answer_codec import write_answer
from bucketq.rpc.protobuf.call_codec import HELLO, WELCOME, read_call
from bucketq.rpc.refusals import error_of, refusal_of
from bucketq.rpc.transport import ServedConnection, Service

MIB = 1024 * 1024
MAX_MESSAGE_BYTES = 16 * MIB
"""The largest message that a broker takes. gRPC buffers as much for every client that begins to
send one, also before it has shown a token, so it cannot be as large as a request. Older clients
send each message in one piece: 8 MiB of calls, and one call more."""
MAX_REQUEST_BYTES = 128 * MIB
"""The largest request, which comes in parts; only authenticated clients may send parts. The largest
batch of jobs of the default settings has 64 MiB."""
MAX_RESPONSE_BYTES = 1024 * MIB
"""The largest answer that a client takes: the largest snapshot that a broker makes (128 MiB), and
room for those of older brokers."""
NO_COMPRESSION = ("grpc.compression_enabled_algorithms_bitset", 1)
"""Compression is off: gRPC decompresses a message up to the largest allowed size before it rejects
it, so that one megabyte on the wire would cost a hundred in memory, on every stream."""
MAX_CALLS = 20_000
"""How many calls one message may contain: ten times what our clients send."""
_MESSAGE_ANSWERS = 125
"""How many answers go in one message. Small messages let the client process one while the broker
encodes the next."""
_MESSAGE_BYTES = 4 * MIB
"""The same in bytes."""
_MAX_WAITING_ANSWERS = 20_000
"""With more unread answers, no more calls of this client are read: as many as one message of calls
can cause."""
_MAX_WAITING_ROWS = 100_000
"""The same for the jobs in its answers: ten of the longest lists of the default settings."""
_WITH_JOBS = (Page, Snapshot, BatchPage, CopyPart)
_CHANGES_ROWS = 10_000
"""What a page of changes counts as, whose rows differ in size: it has about a megabyte."""
_SLICE = 2000
"""How many calls are decoded before other tasks run: those of one message of our clients."""
_RETRY_AFTER_S = 1.0
"""When to retry calls that did not fit in a message; any short time will do."""
_MANY = 4096
"""With fewer calls without an answer, it is not worth looking for those that were dropped."""
_EARLY_CALLS = 100
"""A client that sends more before it has shown its token is rejected: answers cost memory."""
_LATE_S = 60.0
"""How long an answer is still sent after the client's own limit for waiting."""

Context = Any
"""A ``ServicerContext`` over bytes, which the stubs do not cover."""
_log = logging.getLogger(__name__)


class ServerStream(ActiveCall):
    """One stream, on which nothing was sent yet: calls in, answers out."""

    def __init__(self, context: Context, admission: Admission) -> None:
        super().__init__()
        self._context = context
        self._admission = admission
        self._connection: ServedConnection | None = None
        self._asked: dict[int, tuple[str, float]] = {}
        """The verb of each tag without an answer, and until when the client waits for it."""
        self._sweep_at = _MANY
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._waiting: deque[tuple[Answer, str]] = deque()
        self._rows = 0
        """How many jobs are in the answers that were not sent yet."""
        self._version = 0
        self._shows_life = False
        self._wake = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._finishing = False
        self._is_greeted = False

    def finish(self) -> None:
        """End the stream once its pending calls are answered."""
        self._finishing = True
        self._wake.set()

    async def run(self, service: Service) -> None:
        """Serve the stream until the client ends it; raises why if this side ends it."""
        try:
            connection = await self.within(admission.TOKEN_S, self._introduce(service))
            if connection is not None:
                await self._read_and_write(connection)
        except TimeoutError:
            raise self._too_slow() from None
        finally:
            if self._connection is not None:
                self._connection.close()
            self._drop_parts()

    async def _introduce(self, service: Service) -> ServedConnection | None:
        """Exchange the first messages until the client is authenticated; None: it has left.

        Until then only its hello and its token are accepted.
        """
        request = await self._next_request()
        if request is None:
            return None
        if not request.HasField("hello"):
            message = "the first message of a session must carry `hello`"
            raise InvalidRequestError(message)
        # Stored at once: if the client hangs up just as this ends, the result is lost.
        connection = self._connection = service.open(HELLO.read(request.hello), self._collect)
        welcome = pb.SessionResponse(welcome=WELCOME.encode(connection.welcome))
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
        """Reject calls that come before the token."""
        if calls:
            error = AccessDeniedError("the queue requires a token: show it before the first call")
            if len(calls) > _EARLY_CALLS:
                raise error
            self._waiting.extend((Answer(call.tag, None, refusal_of(error)), "") for call in calls)
            await self._context.write(self._next_message())

    def _too_slow(self) -> BucketQError:
        wait = f"in {admission.TOKEN_S:g} s"
        if self._is_greeted:
            return UnavailableError(f"the queue requires a token, and none came {wait}: try again")
        message = f"a session begins with a message that carries `hello`; none came {wait}"
        return InvalidRequestError(message)

    async def _read_and_write(self, connection: ServedConnection) -> None:
        """Read and write until the client ends the stream; raises why if this side ends it."""
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
            return
        for failure in ended:
            if isinstance(failure, BucketQError):
                raise failure
            if isinstance(failure, Exception):
                _log.error("a session failed", exc_info=failure)
                raise error_of(refusal_of(failure)) from failure
        if self.stopped.done():
            raise self.stopped.result()
        if self._finishing:
            raise stopping()

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
        """Whether the client has too many unread answers."""
        return len(self._waiting) > _MAX_WAITING_ANSWERS or self._rows > _MAX_WAITING_ROWS

    async def _take_in(self, connection: ServedConnection, request: pb.SessionRequest) -> None:
        """Take the token and the calls of a message, which may be one part of a larger one."""
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
        """Pass the calls of a message to the broker, in slices."""
        for start in range(0, len(sent), _SLICE):
            if start:
                await asyncio.sleep(0)
            self._hand_over_some(connection, sent[start : start + _SLICE], start)

    def _hand_over_some(
        self, connection: ServedConnection, sent: Iterable[pb.Call], start: int
    ) -> None:
        """Pass calls to the broker; those that cannot be decoded are rejected here."""
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
        """Take answers for the next message. An empty message is sent too, as a sign of life.

        A second answer to the same call is dropped.
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
        """Forget calls whose client has stopped waiting: a broker may drop them unanswered."""
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
    """Return how many jobs the answer to a read contains."""
    value = answer.value
    if isinstance(value, ChangePage):
        return _CHANGES_ROWS if value.changes else 0
    return len(value.jobs) if isinstance(value, _WITH_JOBS) else 0


def _refuse_call(index: int, tag: int) -> NoReturn:
    if index >= MAX_CALLS:
        message = f"more than {MAX_CALLS:,} calls in one message: send several"
        raise OverloadedError(message, retry_after_s=_RETRY_AFTER_S)
    message = f"tag {tag} is in use by a call that has no answer yet"
    raise InvalidRequestError(message)


def _too_large(size_bytes: int) -> Refusal:
    message = (
        f"the answer has {size_bytes:,} bytes, {MAX_RESPONSE_BYTES:,} fit in one message: ask for "
        "fewer jobs at once, or read the storage by the address of the queue's object"
    )
    return refusal_of(PayloadTooLargeError(message))


def parse(shape: Any, body: bytes) -> Any:
    """Decode a message. Raises ``InvalidRequestError`` if that fails."""
    try:
        return shape.FromString(body)
    except DecodeError as error:
        message = f"the message is not a valid {shape.DESCRIPTOR.full_name}: {error}"
        raise InvalidRequestError(message) from error
