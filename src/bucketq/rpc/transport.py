"""``Transport``: dial an address, listen, exchange messages.

``rpc.grpc`` is one, the simulated network of ``simulator`` another. Brokers and clients depend on
this protocol and import neither.

A transport guarantees little: a message may arrive late, twice, out of order or never, and the
sender may not notice. It must keep the messages of one connection apart from those of others,
report to both ends when it *knows* that a connection is over, and distinguish "nothing listens
there" from "no answer yet", because the first is evidence that a broker is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from bucketq.rpc.messages import Answers, Call, Hello, Ping, Pong, Welcome


class ConnectionLostError(Exception):
    """The connection is over, or was never established. What was sent may have arrived, or not."""


class NoBrokerThereError(ConnectionLostError):
    """The address refused the connection, or what listens there is not a broker of this queue."""


class UntrustedError(ConnectionLostError):
    """The peer must not be used: its address is not allowed, or it did not prove itself.

    This is not evidence that a broker is gone.
    """


class WrongProtocolError(ConnectionLostError):
    """What listens there speaks TLS although none was expected, or the other way round.

    If the address came from the object, this counts as no answer: the broker that recorded it does
    not listen there any more.
    """


class CannotDialError(ConnectionLostError):
    """This side could not dial, for example because its certificate files cannot be read.

    That says nothing about the broker, and is usually transient (certificate files are being
    replaced): dial again later.
    """


class Connection(Protocol):
    """One connection, seen from the client."""

    @property
    def welcome(self) -> Welcome:
        """The first answer of the broker."""
        ...

    async def send(self, calls: Sequence[Call]) -> None:
        """Send calls in one message. Raises ``ConnectionLostError`` if the connection is over."""
        ...

    async def receive(self) -> Answers:
        """Wait for the next answers. Raises ``ConnectionLostError`` if none will come."""
        ...

    async def close(self) -> None:
        """Close it. May be called twice."""
        ...


class ServedConnection(Protocol):
    """One connection, seen from the broker."""

    @property
    def welcome(self) -> Welcome:
        """The first answer to the client."""
        ...

    @property
    def is_admitted(self) -> bool:
        """Whether the client is authenticated: it has shown a valid token, or needs none."""
        ...

    def show(self, token: str) -> None:
        """Check the client's token. Raises ``AccessDeniedError`` if it is not valid."""
        ...

    def receive(self, calls: Sequence[Call]) -> None:
        """Take calls. Their answers go to ``send`` once they are durable."""
        ...

    def close(self) -> None:
        """Note that the client is gone. May be called twice."""
        ...


class Service(Protocol):
    """What a transport needs of a broker. None of its methods blocks or waits."""

    def ping(self, ping: Ping) -> Pong:
        """Answer from memory. Raises ``QueueNotFoundError`` if it does not know the queue."""
        ...

    def trusts(self, token: str) -> bool:
        """Whether a client with this token is admitted; empty: a client that has shown none."""
        ...

    def open(self, hello: Hello, send: Callable[[Answers], None]) -> ServedConnection:
        """Open a connection whose answers are passed to ``send``, which must not block.

        Raises ``QueueNotFoundError``, ``SupersededError`` if this broker does not lead the queue,
        or ``AccessDeniedError`` if a token is required and none is named. The transport sends each
        to the client as a ``Refusal``.
        """
        ...


class Listener(Protocol):
    """An address at which a service listens."""

    @property
    def address(self) -> str:
        """``host:port``, with the port that was actually bound."""
        ...

    async def close(self, grace_s: float = 0.0) -> None:
        """Reject new calls, let pending ones finish for up to ``grace_s``, and stop."""
        ...


class Transport(Protocol):
    """Dials brokers, and listens for clients.

    An address that begins with ``tls://`` is dialled over TLS or not at all.
    """

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        """Ask whether a broker of the queue listens at an address.

        Raises:
            NoBrokerThereError: The address refuses connections, or something else listens there.
            UntrustedError: The address is not allowed.
            CannotDialError: This side cannot dial now; nothing was sent.
            ConnectionLostError: No answer in time.
        """
        ...

    async def open(self, address: str, hello: Hello, timeout_s: float) -> Connection:
        """Connect to a broker.

        Raises:
            NoBrokerThereError: The address refuses connections, or something else listens there.
            UntrustedError: The address is not allowed, or the peer did not prove itself.
            AccessDeniedError: The broker requires a token, and there is none or an invalid one.
            ConnectionLostError: No answer in time.
            QueueNotFoundError: The broker there does not know the queue.
            SupersededError: It knows the queue and does not lead it.
        """
        ...

    async def listen(self, address: str, service: Service) -> Listener:
        """Serve at an address; port 0 takes any that is free.

        Raises ``InvalidRequestError`` if the address cannot be bound.
        """
        ...

    async def close(self) -> None:
        """Close every connection. Listeners are closed separately."""
        ...
