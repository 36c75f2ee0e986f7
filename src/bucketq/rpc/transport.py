"""``Transport``: dial an address, listen, exchange messages.

gRPC is one (``rpc.grpc``), the simulated network another (``simulator``). Brokers and
clients are written against this and know neither.

A transport promises little, and no more may be assumed: a message that was sent may arrive late,
twice, out of order or never, and the sender may not be told. What it must do: keep one
connection's messages whole, tell both ends when it *knows* that a connection is over, and
tell apart "nobody listens there" from "no answer yet", because the first is evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bucketq.rpc.messages import Answers, Call, Hello, Ping, Pong, Welcome


class ConnectionLostError(Exception):
    """The connection is over, or there never was one. Nothing is known of what was sent."""


class NoBrokerThereError(ConnectionLostError):
    """The address refused, or whatever listens there is no broker of this queue."""


class UntrustedError(ConnectionLostError):
    """Whoever may be there is not to be talked to: the address is refused, or it proved nothing.

    That is no evidence that a broker is gone.
    """


class WrongProtocolError(ConnectionLostError):
    """Whatever listens there speaks TLS where none was expected, or the other way round.

    For whoever was told how to dial by the object that is silence: the broker that wrote it there
    does not answer.
    """


class CannotDialError(ConnectionLostError):
    """This side could not dial, for a reason of its own: certificate files or descriptors.

    That says nothing about the broker. It passes: certificate files are being replaced, for
    example. Dial again later.
    """


class Connection(Protocol):
    """One connection, seen from the client."""

    @property
    def welcome(self) -> Welcome:
        """What the broker said at the beginning."""
        ...

    async def send(self, calls: Sequence[Call]) -> None:
        """Send calls in one message. Raises ``ConnectionLostError`` where it is over."""
        ...

    async def receive(self) -> Answers:
        """Wait for the next answers. Raises ``ConnectionLostError`` where none will come."""
        ...

    async def close(self) -> None:
        """End it. Doing so twice is no error."""
        ...


class ServedConnection(Protocol):
    """One connection, seen from the broker."""

    @property
    def welcome(self) -> Welcome:
        """What the client is told at the beginning."""
        ...

    @property
    def is_admitted(self) -> bool:
        """Whether the client may be here: it has shown a good token, or needs none."""
        ...

    def show(self, token: str) -> None:
        """Take the token that the client shows. Raises ``AccessDeniedError`` on one that is bad."""
        ...

    def receive(self, calls: Sequence[Call]) -> None:
        """Take calls. Their answers go to ``send``, when they are true."""
        ...

    def close(self) -> None:
        """Note that the client is gone. Doing so twice is no error."""
        ...


class Service(Protocol):
    """What a broker is to a transport. Nothing in it waits."""

    def ping(self, ping: Ping) -> Pong:
        """Answer from memory. Raises ``QueueNotFoundError`` for a queue that it does not know."""
        ...

    def trusts(self, token: str) -> bool:
        """Whether a client with this token may be here at all; empty: one that has shown none."""
        ...

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> ServedConnection:
        """Begin a connection whose answers are handed to ``send``, which must not wait.

        Raises ``QueueNotFoundError``, ``SupersededError`` where the queue is not led here, or
        ``AccessDeniedError`` where a token is wanted and none is named; a transport carries each
        to the client as a ``Refusal``.
        """
        ...


class Listener(Protocol):
    """An address at which a service is reachable."""

    @property
    def address(self) -> str:
        """Where: ``host:port``, with the port that was really bound."""
        ...

    async def close(self, grace_s: float = 0.0) -> None:
        """Take no new calls, let what is under way finish for up to ``grace_s``, and stop."""
        ...


class Transport(Protocol):
    """A way to reach brokers, and to be reached.

    An address that begins with ``tls://`` is reached over TLS or not at all.
    """

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        """Ask whether a broker is there.

        Raises:
            NoBrokerThereError: The address refuses, or something else listens there.
            UntrustedError: Nobody may be talked to there.
            CannotDialError: This side cannot dial now; nothing was asked.
            ConnectionLostError: No answer in time.
        """
        ...

    async def open(self, address: str, hello: Hello, timeout_s: float) -> Connection:
        """Begin a connection.

        Raises:
            NoBrokerThereError: The address refuses, or something else listens there.
            UntrustedError: Nobody may be talked to there, or it did not prove itself.
            AccessDeniedError: The broker wants a token, and there is none, or not a good one.
            ConnectionLostError: No answer in time.
            QueueNotFoundError: The broker there does not know the queue.
            SupersededError: It knows the queue and does not lead it.
        """
        ...

    async def listen(self, address: str, service: Service) -> Listener:
        """Serve at an address; port 0 takes any that is free.

        Raises ``InvalidRequestError`` where the address cannot be bound.
        """
        ...

    async def close(self) -> None:
        """Let go of everything that is kept for later dials. Listeners are closed apart."""
        ...
