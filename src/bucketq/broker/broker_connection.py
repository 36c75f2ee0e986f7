"""One client's connection to a broker: calls come in, and answers go out once they are durable.

Answers of the same commit are sent together. When the client is gone, its requests are committed
all the same, apart from claims that still wait: no worker would run their jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bucketq.broker.broker_observer import BrokerObserver
from bucketq.broker.token_guard import ShownToken
from bucketq.commit.pending_requests import PendingRequest
from bucketq.model.operations import WAITING, Request
from bucketq.model.oversight.audit_notes import DESCRIBED
from bucketq.rpc.messages import Answer, Answers, Call, FlushArchive, Welcome
from bucketq.rpc.refusals import refusal_of

if TYPE_CHECKING:  # It imports this module.
    from bucketq.broker.broker import Broker

_LONGEST_NAME = 100
"""How many characters of the name of a client the audit table keeps."""


class RemoteRequest(PendingRequest):
    """A request of a client."""

    __slots__ = ("_is_resolved", "connection", "tag")

    def __init__(
        self, connection: BrokerConnection, call: Call, request: Request, now_s: float
    ) -> None:
        """Note when it arrived, and how long its client waits."""
        super().__init__(request, connection.version, now_s)
        self.connection = connection
        self.tag = call.tag
        self.expires_at = now_s + call.ttl_s
        self._is_resolved = False

    @property
    def owner(self) -> object:
        """The connection: reads of different clients take turns."""
        return self.connection

    @property
    def by(self) -> str:
        """The token that its client has shown; or the name of an operator's client, unproved."""
        shown = self.connection.shown
        if shown is not None:
            return f"token {shown.id}"
        name = self.connection.client
        return f"client {name}" if name and type(self.request.operation) in DESCRIBED else ""

    @property
    def is_resolved(self) -> bool:
        """Whether it was answered, or its client is gone."""
        return self._is_resolved or not self.connection.is_open

    def resolve(self, answer: Any, error: Exception | None) -> None:
        """Answer the request, unless it was answered."""
        if not self._is_resolved:
            self._is_resolved = True
            self.connection.answer(self.tag, answer, error)


class ObservedRequest(RemoteRequest):
    """A request whose answer is reported to the observer of the broker."""

    __slots__ = ("_arrived_s", "_observer")

    def __init__(
        self,
        connection: BrokerConnection,
        call: Call,
        request: Request,
        now_s: float,
        observer: BrokerObserver,
    ) -> None:
        super().__init__(connection, call, request, now_s)
        self._arrived_s = now_s
        self._observer = observer

    def resolve(self, answer: Any, error: Exception | None) -> None:
        """Answer the request, unless it was answered, and report that."""
        if not self._is_resolved:
            took_s = asyncio.get_running_loop().time() - self._arrived_s
            self._observer.answered(self.request.operation, answer, error, took_s)
        super().resolve(answer, error)


class BrokerConnection:
    """One client's connection to a broker."""

    def __init__(
        self,
        broker: Broker,
        welcome: Welcome,
        send: Callable[[Answers], None],
        shown: ShownToken | None = None,
        client: str = "",
    ) -> None:
        """Begin; answers are passed to ``send``."""
        self.client = client[:_LONGEST_NAME]
        """What the client calls itself."""
        self.welcome = welcome
        self.shown = shown
        """The token that the client has shown, if any."""
        self.is_open = True
        self._broker = broker
        self._send = send
        self._answers: list[Answer] = []
        self._patient: dict[int, PendingRequest] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    @property
    def version(self) -> int:
        """The newest version that is known to be in the object."""
        return self._broker.version

    @property
    def is_admitted(self) -> bool:
        """Whether the client is authenticated: it has shown a valid token, or needs none."""
        return self.shown is not None or self._broker.trusts("")

    def show(self, token: str) -> None:
        """Check the client's token. Raises ``AccessDeniedError`` if it is not valid."""
        self.shown = self._broker.admit(token)

    def receive(self, calls: Sequence[Call]) -> None:
        """Take calls."""
        now_s = asyncio.get_running_loop().time()
        for call in calls:
            if isinstance(call.request, FlushArchive):
                self._broker.flush_archive(self, call.tag)
                continue
            observer = self._broker.observer
            if observer is None:
                incoming = RemoteRequest(self, call, call.request, now_s)
            else:
                incoming = ObservedRequest(self, call, call.request, now_s, observer)
            operation = call.request.operation
            if isinstance(operation, WAITING) and operation.wait_s:
                self._patient[call.tag] = incoming
            self._broker.take(incoming)

    def answer(self, tag: int, value: Any, error: Exception | None) -> None:
        """Answer a call. Answers given in one turn of the loop go in one message."""
        if not self.is_open:
            return
        if self._patient:
            self._patient.pop(tag, None)
        if not self._answers:
            asyncio.get_running_loop().call_soon(self.flush)
        refusal = None if error is None else refusal_of(error)
        self._answers.append(Answer(tag, value, refusal))

    def flush(self) -> None:
        """Send the answers that have collected."""
        if self._answers and self.is_open:
            answers, self._answers = self._answers, []
            self._send(Answers(answers, self._broker.version))

    def show_life(self) -> None:
        """Send a message without answers if requests of the client wait, as a sign of life."""
        if self._patient and self.is_open:
            self._send(Answers([], self._broker.version))

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to a task until it is done."""
        number = id(task)
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    def close(self) -> None:
        """Note that the client is gone."""
        if self.is_open:
            self.is_open = False
            for task in list(self._tasks.values()):
                task.cancel()
            self._broker.leave(self, list(self._patient.values()))
