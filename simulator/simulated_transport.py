"""The transport of a simulated host, and its connections: two ends, and two flows of packets.

A packet arrives whether or not its sender still lives. At the broker it is handled inside the
broker's process, one callback per packet, so that the process can be killed between any two, and a
frozen broker finds them in order when it resumes. At a client it waits in an inbox until the
client's process takes it.

Each end of a connection ends by itself, when it learns of the end, and not before. An end that has
ended answers further packets with a reset, as an operating system does, so that the other learns of
it when it next sends, unless the reset is lost as well.

Messages are copied, so that two processes share nothing that either could change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bucketq.errors import BucketQError, QueueNotFoundError, SupersededError
from bucketq.model.records import JobRecord
from bucketq.rpc.messages import Answers, Call, Hello, Ping, Pong, Refusal, Welcome
from bucketq.rpc.refusals import error_of, refusal_of
from bucketq.rpc.transport import ConnectionLostError, NoBrokerThereError, ServedConnection, Service
from bucketq.testing.simulated_process import Process

if TYPE_CHECKING:
    from simulator.simulated_network import SimulatedNetwork

_YIELDS_BEFORE_SENDING = 0.5
"""A probability: a cancelled caller has sent its calls, or has not, equally often."""


class Flow:
    """One direction of a connection.

    Attributes:
        source: The host that packets come from.
        target: The host that they go to.
        sender: The process that sends them, or the loop's ``world`` for an operating system.
        floor_s: No packet arrives before this time, unless a fault reorders it: those that were
            sent earlier come first.
    """

    __slots__ = ("floor_s", "sender", "source", "target")

    def __init__(self, source: str, target: str, sender: Process) -> None:
        """Make an empty flow."""
        self.source = source
        self.target = target
        self.sender = sender
        self.floor_s = 0.0


class SimulatedConnection:
    """A connection between a client and an address, for a ping or a connection."""

    def __init__(self, network: SimulatedNetwork, number: int, source: str, address: str) -> None:
        """Dial, on behalf of the running process. Nothing is sent yet."""
        loop = network.loop
        target = address.rpartition(":")[0]
        self.network = network
        self.number = number
        self.address = address
        self.there = Flow(source, target, loop.current_process())
        self.back = Flow(target, source, loop.environment)
        self.client = ClientEnd(self)
        self.server: ServerEnd | None = None

    def begin(self, first: Hello | Ping) -> None:
        """Send the first message."""
        self.network.send(self.there, self._knock, first, self.violate)

    def to_server(self, calls: Sequence[Call]) -> None:
        """Send calls."""
        if self.server is not None:
            self.network.send(self.there, self.server.take, list(calls), self.violate)

    def to_client(self, message: Welcome | Pong | Refusal | Answers) -> None:
        """Send an answer of the broker."""
        self.network.send(self.back, self.client.take, message, self.violate)

    def refuse(self, reason: str) -> None:
        """Answer that there is no broker here."""
        self.network.send(self.back, self.client.refuse, reason, self.violate)

    def tell_other(self, end: End) -> None:
        """Notify the other end that this one has ended; a fault may delay or drop that."""
        is_client = end is self.client
        other = self.server if is_client else self.client
        if other is not None and not other.is_over:
            self.network.resolve(self.there if is_client else self.back, other.hear_of_end)

    def violate(self) -> None:
        """Break the connection: one end certainly learns of it, the other perhaps."""
        network, server = self.network, self.server
        if server is None:
            network.resolve(self.back, self.client.hear_of_end, certain=True)
            return
        client_is_sure = network.chance(0.5)
        network.resolve(self.back, self.client.hear_of_end, certain=client_is_sure)
        network.resolve(self.there, server.hear_of_end, certain=not client_is_sure)

    def _knock(self, first: Hello | Ping) -> None:
        """Arrive at the address and look for a listener. A duplicate finds it open already."""
        if self.server is None:
            self.network.accept(self, first)


class End:
    """One end of a connection, and of the process that it belongs to.

    Attributes:
        is_over: Whether this end knows that the connection has ended.
    """

    def __init__(self, connection: SimulatedConnection, process: Process) -> None:
        """Make an end that ends with its process."""
        self.connection = connection
        self.network = connection.network
        self.process = process
        self.is_over = False
        self.network.attach(self)

    def hang_up(self, *, telling: bool = True) -> None:
        """End it from this side, by intent or by death. A second call does nothing."""
        if self.is_over:
            return
        self.is_over = True
        self.network.detach(self)
        self._ended()
        if telling:
            self.connection.tell_other(self)

    def hear_of_end(self) -> None:
        """Learn from the network that it has ended."""
        self.hang_up(telling=False)

    def _ended(self) -> None:
        """Clean up when this end has ended."""

    def _accepts(self) -> bool:
        """Whether a packet can be taken; if this end has ended, a reset is sent.

        No reset is sent while the host of a dead process has no power.
        """
        if self.is_over and not self.network.is_dark(self.process):
            self.connection.tell_other(self)
        return not self.is_over


class ClientEnd(End):
    """The client's end: a ``Connection`` once the broker has sent its welcome."""

    def __init__(self, connection: SimulatedConnection) -> None:
        """Make the end of the running process."""
        loop = connection.network.loop
        self._reason = f"the connection to {connection.address} was reset"
        self._first: asyncio.Future[object] = loop.create_future()
        self._inbox: deque[Answers] = deque()
        self._arrived = asyncio.Event()
        self._welcome: Welcome | None = None
        super().__init__(connection, loop.current_process())

    @property
    def welcome(self) -> Welcome:
        """The broker's welcome."""
        if self._welcome is None:
            raise ConnectionLostError("the connection has not begun")
        return self._welcome

    async def ping(self, ping: Ping, timeout_s: float) -> Pong:
        """Send a ping, wait for the answer, and close the connection."""
        try:
            answer = await self._ask(ping, timeout_s)
        finally:
            self.hang_up()
        if not isinstance(answer, Pong):
            error = self._error_of(answer)
            if not isinstance(error, ConnectionLostError):
                raise NoBrokerThereError(str(error))
            raise error
        if ping.incarnation not in {"", answer.incarnation}:
            raise NoBrokerThereError(f"{self.connection.address} serves {answer.incarnation}")
        return answer

    async def open(self, hello: Hello, timeout_s: float) -> ClientEnd:
        """Send a hello and wait for the welcome. A cancelled caller closes the connection."""
        answer: object = None
        try:
            answer = await self._ask(hello, timeout_s)
        finally:
            if not isinstance(answer, Welcome):
                self.hang_up()
        if isinstance(answer, Welcome):
            self._welcome = answer
            return self
        raise self._error_of(answer)

    async def send(self, calls: Sequence[Call]) -> None:
        """Send calls. If the caller is cancelled, they may or may not have been sent."""
        self._check()
        yields_first = self.network.chance(_YIELDS_BEFORE_SENDING)
        if yields_first:
            await asyncio.sleep(0)
            self._check()
        self.connection.to_server(calls)
        if not yields_first:
            await asyncio.sleep(0)

    async def receive(self) -> Answers:
        """Wait for the next answers. Those that arrived before the end are still returned."""
        while not self._inbox:
            self._check()
            self._arrived.clear()
            await self._arrived.wait()
        return self._inbox.popleft()

    async def close(self) -> None:
        """Close it, and drop what was not received."""
        if not self.is_over:
            self._reason = f"the connection with {self.connection.address} was closed"
        self._inbox.clear()
        self.hang_up()

    def take(self, message: Welcome | Pong | Refusal | Answers) -> None:
        """Put a packet into the inbox, outside of any process."""
        if not self._accepts():
            return
        if isinstance(message, Answers):
            self._inbox.append(message)
            self._arrived.set()
        elif not self._first.done():
            self._first.set_result(message)

    def refuse(self, reason: str) -> None:
        """Learn that there is no broker."""
        if not self._first.done():
            self._first.set_result(reason)

    def _ended(self) -> None:
        if not self._first.done():
            self._first.set_result(None)
        self._arrived.set()

    async def _ask(self, first: Hello | Ping, timeout_s: float) -> object:
        self.connection.begin(first)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._first
        except TimeoutError:
            raise ConnectionLostError(
                f"no answer from {self.connection.address} within {timeout_s} s"
            ) from None

    def _error_of(
        self, answer: object
    ) -> ConnectionLostError | QueueNotFoundError | SupersededError:
        """Return the error for a first answer of the wrong type."""
        if isinstance(answer, str):
            return NoBrokerThereError(answer)
        if not isinstance(answer, Refusal):
            return ConnectionLostError(self._reason)
        error = error_of(answer)
        if isinstance(error, QueueNotFoundError | SupersededError):
            return error
        return ConnectionLostError(str(error))

    def _check(self) -> None:
        if self.is_over:
            raise ConnectionLostError(self._reason)


class ServerEnd(End):
    """The listener's end: it calls the service inside the listening process."""

    def __init__(
        self,
        connection: SimulatedConnection,
        process: Process,
        service: Service,
        forget: Callable[[ServerEnd], None],
    ) -> None:
        """Make the listener's end; ``forget`` is called when it has ended."""
        self._service = service
        self._forget = forget
        self._served: ServedConnection | None = None
        super().__init__(connection, process)

    def begin(self, first: Hello | Ping) -> None:
        """Hand the first message to the service."""
        self._run(self._answer_ping if isinstance(first, Ping) else self._open, first)

    def take(self, calls: list[Call]) -> None:
        """Hand a packet to the process."""
        if self._accepts():
            self._run(self._receive, calls)

    def send(self, answers: Answers) -> None:
        """Send answers; they are dropped if the client is gone."""
        if not self.is_over:
            self.connection.to_client(answers)

    def _run(self, callback: Callable[[Any], None], argument: Any) -> None:
        """Run a callback inside the process, and record what it raises for the test."""

        def guarded() -> None:
            try:
                callback(argument)
            except Exception as error:  # noqa: BLE001 - a service that raises this is broken
                self.network.errors.append(error)
                self.hang_up()

        self.network.loop.call_soon(guarded, context=self.process.context)

    def _ended(self) -> None:
        self._forget(self)
        self._run(self._close, None)

    def _answer_ping(self, ping: Ping) -> None:
        try:
            answer: Pong | Refusal = self._service.ping(ping)
        except BucketQError as error:
            answer = refusal_of(error)
        self._answer_for_good(answer)

    def _open(self, hello: Hello) -> None:
        try:
            self._served = self._service.open(hello, self.send)
        except BucketQError as error:
            self._answer_for_good(refusal_of(error))
        else:
            if not self.is_over:
                self.connection.to_client(self._served.welcome)

    def _answer_for_good(self, answer: Pong | Refusal) -> None:
        """Send the last answer."""
        if not self.is_over:
            self.connection.to_client(answer)
            self.hang_up(telling=False)

    def _receive(self, calls: list[Call]) -> None:
        if self._served is not None:
            self._served.receive(calls)

    def _close(self, _: None) -> None:
        if self._served is not None:
            self._served.close()


class SimulatedListener:
    """An address at which a process serves; a ``Listener``."""

    def __init__(
        self, network: SimulatedNetwork, address: str, service: Service, process: Process
    ) -> None:
        """Make a listener; ``SimulatedNetwork.bind`` does."""
        self.process = process
        self._network = network
        self._address = address
        self._service = service
        self._ends: dict[int, ServerEnd] = {}
        self._emptied = asyncio.Event()

    @property
    def address(self) -> str:
        """The address, with the port that was bound."""
        return self._address

    def accept(self, connection: SimulatedConnection, first: Hello | Ping) -> None:
        """Accept a connection, as the operating system does, and hand it to the process."""
        end = ServerEnd(connection, self.process, self._service, self._forget)
        self._ends[connection.number] = end
        connection.server = end
        connection.back.sender = self.process
        end.begin(first)

    async def close(self, grace_s: float = 0.0) -> None:
        """Refuse new connections; end the open ones after ``grace_s``, or when none is left.

        Calls on open connections are still accepted meanwhile.
        """
        self._network.unbind(self)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    while self._ends:
                        self._emptied.clear()
                        await self._emptied.wait()
        finally:
            for end in list(self._ends.values()):
                end.hang_up()

    def _forget(self, end: ServerEnd) -> None:
        self._ends.pop(end.connection.number, None)
        if not self._ends:
            self._emptied.set()


class SimulatedTransport:
    """The ``Transport`` of one host, for every process that runs on it."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        """Make a transport; ``SimulatedNetwork.host`` does."""
        self.name = name
        self._network = network

    async def ping(self, address: str, ping: Ping, timeout_s: float) -> Pong:
        """Ask whether a broker is serving."""
        return await self._network.connect(self.name, address).ping(ping, timeout_s)

    async def open(self, address: str, hello: Hello, timeout_s: float) -> ClientEnd:
        """Begin a connection."""
        return await self._network.connect(self.name, address).open(hello, timeout_s)

    async def listen(self, address: str, service: Service) -> SimulatedListener:
        """Serve at an address of this host; port 0 takes one that is free."""
        return self._network.bind(self.name, address, service)

    async def close(self) -> None:
        """Close the connections that the running process opened from this host."""
        self._network.hang_up_from(self.name)


def copied(value: Any) -> Any:
    """Copy the mutable parts of a message; the rest, also records of jobs, is shared."""
    if isinstance(value, list):
        return [copied(each) for each in value]
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if type(value) is tuple:
        items = tuple(copied(each) for each in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, Struct) and not isinstance(value, JobRecord):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        copies = {name: copied(each) for name, each in fields.items()}
        if any(copies[name] is not fields[name] for name in fields):
            return type(value)(**copies)
    return value
