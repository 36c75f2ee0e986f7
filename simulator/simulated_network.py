"""A simulated network: hosts with addresses, and faults between them.

``network.host("host1")`` is the ``Transport`` of every process on that host; the process that calls
it listens or dials. The network is harsher than TCP: a message of a connection may be late, lost,
duplicated or overtaken while the connection stays open, because ``Transport`` promises no more,
and the simulator must find code that relies on more. Without faults, messages in one direction of
one connection arrive in order.

What happens to processes:

* **Killed or exited**: its ports are free, new connections are refused, and its connections are
  reset. After a power cut no reset is sent, and its addresses do not answer for a while. Messages
  that it sent still arrive, unless they had not left the host.
* **Frozen**: it keeps its ports and does not answer; what arrives meanwhile waits for it.
* **Cut off**: packets are dropped silently in the directions that are cut.

``network.injected`` counts the faults. All randomness comes from one stream of the loop's seed.
Nothing outside the loop is touched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

from bucketq.errors import InvalidRequestError
from bucketq.rpc.messages import Hello, Ping
from bucketq.rpc.transport import Service
from bucketq.testing.simulated_process import Process
from bucketq.testing.virtual_loop import VirtualLoop
from simulator.simulated_transport import (
    ClientEnd,
    End,
    Flow,
    SimulatedConnection,
    SimulatedListener,
    SimulatedTransport,
    copied,
)

Way = Literal["both", "out", "in"]

MESSAGE_FAULTS = ("lost", "doubled", "reordered", "late", "stalled", "broken")
"""The faults of messages; a message has at most one."""

NOTICE_FAULTS = ("unnoticed", "noticed_late")
"""The faults of the notice that a connection has ended; a notice has at most one."""

_LONE_FAULTS = (("power_cut",), ("lost_with_sender",), ("reused_port",))
_ALL = "*"
_FIRST_PORT = 4001
_LAST_PORT = 65535
_DELIVERED_THOUGH_BROKEN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFaults:
    """The rates of faults, each between 0 and 1, and how long the slow ones take.

    Attributes:
        lost: A message never arrives, and no error is raised.
        doubled: It arrives a second time, ``again_s`` after the first.
        reordered: It arrives ``again_s`` later, and later ones overtake it.
        late: The same, by ``late_s``.
        stalled: It arrives ``late_s`` later, and holds up those behind it.
        broken: The connection breaks before or after it has arrived. One of the two ends is
            notified; for the other, ``unnoticed`` and ``noticed_late`` decide.
        unnoticed: One end of a connection is not notified that the other has ended it. It learns so
            when it next sends something, or never.
        noticed_late: It is notified ``late_s`` later.
        power_cut: The network of a killed process's host fails too: no end is notified, and for
            ``power_cut_s`` its addresses neither answer nor refuse.
        lost_with_sender: A packet of a killed process had not left the host, and never does.
        reused_port: Port 0 returns a port that was used before.
        again_s: Bounds, drawn evenly over the orders of magnitude.
        late_s: Bounds.
        power_cut_s: Bounds.
    """

    lost: float = 0.0
    doubled: float = 0.0
    reordered: float = 0.0
    late: float = 0.0
    stalled: float = 0.0
    broken: float = 0.0
    unnoticed: float = 0.0
    noticed_late: float = 0.0
    power_cut: float = 0.0
    lost_with_sender: float = 0.0
    reused_port: float = 0.0
    again_s: tuple[float, float] = (0.001, 15.0)
    late_s: tuple[float, float] = (1.0, 15.0)
    power_cut_s: tuple[float, float] = (5.0, 60.0)

    def __post_init__(self) -> None:
        """Reject rates that are not probabilities."""
        for names in (MESSAGE_FAULTS, NOTICE_FAULTS, *_LONE_FAULTS):
            rates = [getattr(self, name) for name in names]
            if min(rates) < 0 or sum(rates) > 1:
                raise ValueError(
                    f"rates of {', '.join(names)} must be 0 or more and at most 1 together: {self}"
                )

    @classmethod
    def none(cls) -> NetworkFaults:
        """Return no faults."""
        return cls()

    @classmethod
    def harsh(cls) -> NetworkFaults:
        """Return every fault, for about one in eight messages."""
        return cls(
            lost=0.02,
            doubled=0.03,
            reordered=0.03,
            late=0.02,
            stalled=0.01,
            broken=0.01,
            unnoticed=0.2,
            noticed_late=0.2,
            power_cut=0.3,
            lost_with_sender=0.3,
            reused_port=0.5,
        )

    def times(self, factor: float) -> NetworkFaults:
        """Return the same faults with the rates of messages multiplied."""
        rates = {name: factor * getattr(self, name) for name in MESSAGE_FAULTS}
        return replace(self, **rates)

    def in_order(self) -> NetworkFaults:
        """Return the same faults without duplicates, delays and reordering."""
        return replace(self, doubled=0.0, reordered=0.0, late=0.0, stalled=0.0, noticed_late=0.0)

    def ends(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """Return cumulative rates, so that one number between 0 and 1 selects a fault."""
        return tuple(accumulate(getattr(self, name) for name in names))


class SimulatedNetwork:
    """All hosts of a simulation, and the connections between them.

    Attributes:
        loop: The loop whose time and seed it uses.
        faults: The current faults; set through ``set_faults``.
        injected: How many faults of each name occurred, in the order of first occurrence. Beside
            the names in ``NetworkFaults`` there is ``partition`` (a packet was dropped by one).
        errors: Exceptions that services raised and must not raise. A test should find none.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        faults: NetworkFaults | None = None,
        *,
        latency_s: tuple[float, float] = (0.0005, 0.02),
    ) -> None:
        """Make a network without hosts.

        Args:
            loop: The simulation it is part of.
            faults: The faults; none by default.
            latency_s: Bounds of the time that a packet takes, one way.
        """
        self.loop = loop
        self.latency_s = latency_s
        self.injected: dict[str, int] = {}
        self.errors: list[Exception] = []
        self._rng = loop.stream("network")
        self._hosts: dict[str, SimulatedTransport] = {}
        self._next_port: dict[str, int] = {}
        self._listeners: dict[str, SimulatedListener] = {}
        self._squatters: dict[str, bool] = {}
        self._last_owner: dict[str, Process] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._dark_until_s: dict[int, float] = {}
        self._ends: dict[int, dict[tuple[int, bool], End]] = {}
        self._connections = 0
        self.set_faults(NetworkFaults.none() if faults is None else faults)

    # Called by tests and fault schedules.

    def host(self, name: str) -> SimulatedTransport:
        """Return the transport of a host, which is created on first use."""
        return self._hosts.setdefault(name, SimulatedTransport(self, name))

    def set_faults(self, faults: NetworkFaults) -> None:
        """Change the faults of everything that is sent from now on."""
        self.faults = faults
        self._message_ends = faults.ends(MESSAGE_FAULTS)
        self._notice_ends = faults.ends(NOTICE_FAULTS)

    def end_faults(self) -> None:
        """End all faults, partitions and power cuts.

        Messages that were delayed still arrive late, and an end that was not notified still learns
        only when it sends.
        """
        self.set_faults(NetworkFaults.none())
        self.heal()
        self._dark_until_s.clear()

    def partition(self, a: str, b: str | None = None, way: Way = "both") -> None:
        """Cut host ``a`` off from ``b``, or from all others.

        ``out`` drops what ``a`` sends, ``in`` what is sent to it. A host always reaches itself,
        unless it is given as both.
        """
        other = _ALL if b is None else b
        if way != "in":
            self._cuts[a, other] = None
        if way != "out":
            self._cuts[other, a] = None

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """End the partitions between two hosts, or all of one host, or all."""
        wanted = [name for name in (a, b) if name is not None]
        self._cuts = {pair: None for pair in self._cuts if not all(name in pair for name in wanted)}

    def squat(self, address: str, *, mute: bool = False) -> None:
        """Let something that is not a broker listen at a free address.

        It answers that there is no broker, or, if it is ``mute``, accepts and does not answer.
        """
        self._check_free(address)
        self._squatters[address] = mute

    def vacate(self, address: str) -> None:
        """End what ``squat`` began."""
        self._squatters.pop(address, None)

    def addresses(self) -> list[str]:
        """Return the addresses with a listener, in the order in which they were bound."""
        return [*self._listeners, *self._squatters]

    def severed(self, source: str, target: str) -> bool:
        """Whether packets from one host to another are dropped now."""
        pairs = [(source, target)]
        if source != target:
            pairs += [(source, _ALL), (_ALL, target)]
        return any(pair in self._cuts for pair in pairs)

    # Called by the ends of connections.

    def count(self, fault: str) -> None:
        """Count a fault."""
        self.injected[fault] = self.injected.get(fault, 0) + 1

    def chance(self, rate: float) -> bool:
        """Draw yes or no."""
        return self._rng.random() < rate

    def connect(self, source: str, address: str) -> ClientEnd:
        """Make a connection; nothing is sent yet."""
        self._connections += 1
        return SimulatedConnection(self, self._connections, source, address).client

    def send(
        self,
        flow: Flow,
        deliver: Callable[[Any], None],
        message: Any,
        violate: Callable[[], None],
    ) -> None:
        """Send a message, subject to faults. A dead process sends nothing."""
        if not flow.sender.alive or self._loses(flow):
            return
        fault = self._draw(MESSAGE_FAULTS, self._message_ends)
        arrives_s = self._arrival_s(flow)
        if fault in {"late", "stalled"}:
            arrives_s += self._rng.uniform(*self.faults.late_s)
        elif fault == "reordered":
            arrives_s += self._again_s()
        if fault not in {"lost", "late", "reordered"}:
            flow.floor_s = arrives_s
        if fault != "lost" and (fault != "broken" or self.chance(_DELIVERED_THOUGH_BROKEN)):
            self._schedule(arrives_s, flow, deliver, message)
        if fault == "doubled":
            self._schedule(arrives_s + self._again_s(), flow, deliver, message)
        elif fault == "broken":
            violate()

    def resolve(self, flow: Flow, hear: Callable[[], None], *, certain: bool = False) -> None:
        """Notify the other end that this one has ended, after all earlier messages.

        A host does that for a dead process. A ``certain`` notice comes from the receiver's own
        host, so partitions do not apply.
        """
        if not certain and self._loses(flow):
            return
        fault = None if certain else self._draw(NOTICE_FAULTS, self._notice_ends)
        arrives_s = self._arrival_s(flow)
        if fault is None:
            flow.floor_s = arrives_s
        elif fault == "noticed_late":
            arrives_s += self._rng.uniform(*self.faults.late_s)
        if fault != "unnoticed":
            self._at(arrives_s, self._hear, None if certain else flow, hear)

    def accept(self, connection: SimulatedConnection, first: Hello | Ping) -> None:
        """Deliver the first message of a connection to the listener at its address."""
        address = connection.address
        listener = self._listeners.get(address)
        if listener is not None:
            listener.accept(connection, first)
        elif address in self._squatters:
            if not self._squatters[address]:
                connection.refuse(f"what listens at {address} is not a broker")
        elif address not in self._last_owner or not self.is_dark(self._last_owner[address]):
            connection.refuse(f"nothing listens at {address}")

    def attach(self, end: End) -> None:
        """Tie an end to its process."""
        self._ends_of(end.process)[end.connection.number, isinstance(end, ClientEnd)] = end

    def detach(self, end: End) -> None:
        """Forget an end that has ended."""
        self._ends_of(end.process).pop((end.connection.number, isinstance(end, ClientEnd)), None)

    def hang_up_from(self, host: str) -> None:
        """End all connections that the running process has opened from a host."""
        for end in list(self._ends_of(self.loop.current_process()).values()):
            if isinstance(end, ClientEnd) and end.connection.there.source == host:
                end.hang_up()

    def is_dark(self, process: Process) -> bool:
        """Whether the host of a dead process has no power."""
        return self.loop.time() < self._dark_until_s.get(process.number, 0.0)

    # Addresses.

    def bind(self, host: str, address: str, service: Service) -> SimulatedListener:
        """Let the running process listen at an address of its host."""
        name, _, port = address.rpartition(":")
        if name != host or not port.isdecimal() or int(port) > _LAST_PORT:
            raise InvalidRequestError(
                f"cannot listen at {address!r}: it is not an address of {host}"
            )
        if int(port) == 0:
            address = self._free_address(host)
        self._check_free(address)
        process = self.loop.current_process()
        self._ends_of(process)
        self._last_owner[address] = process
        listener = self._listeners[address] = SimulatedListener(self, address, service, process)
        return listener

    def unbind(self, listener: SimulatedListener) -> None:
        """Free the address of a listener that still has it."""
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    def _is_free(self, address: str) -> bool:
        return address not in self._listeners and address not in self._squatters

    def _check_free(self, address: str) -> None:
        if not self._is_free(address):
            raise InvalidRequestError(f"cannot listen at {address}: the address is in use")

    def _free_address(self, host: str) -> str:
        """Take the next port of a host, or one that was used before."""
        used = [
            address
            for address in self._last_owner
            if address.rpartition(":")[0] == host and self._is_free(address)
        ]
        if used and self.chance(self.faults.reused_port):
            self.count("reused_port")
            return self._rng.choice(used)
        while True:
            port = self._next_port.get(host, _FIRST_PORT)
            self._next_port[host] = port + 1
            address = f"{host}:{port}"
            if self._is_free(address):
                return address

    # Packets.

    def _loses(self, flow: Flow) -> bool:
        """Whether a partition drops a packet."""
        if not self.severed(flow.source, flow.target):
            return False
        self.count("partition")
        return True

    def _draw(self, names: tuple[str, ...], ends: tuple[float, ...]) -> str | None:
        """Draw at most one fault, and count it."""
        place = bisect_right(ends, self._rng.random())
        if place == len(names):
            return None
        self.count(names[place])
        return names[place]

    def _arrival_s(self, flow: Flow) -> float:
        return max(self.loop.time() + self._rng.uniform(*self.latency_s), flow.floor_s)

    def _again_s(self) -> float:
        """Draw a delay evenly over its orders of magnitude."""
        low_s, high_s = self.faults.again_s
        return low_s * float((high_s / low_s) ** self._rng.random())

    def _at(self, when_s: float, callback: Callable[..., None], *arguments: Any) -> None:
        """Schedule a callback that belongs to the network, not to the calling process."""
        self.loop.call_at(when_s, callback, *arguments, context=self.loop.environment.context)

    def _schedule(
        self, when_s: float, flow: Flow, deliver: Callable[[Any], None], message: Any
    ) -> None:
        self._at(when_s, self._arrive, flow, deliver, copied(message))

    def _arrive(self, flow: Flow, deliver: Callable[[Any], None], message: Any) -> None:
        """Deliver a message, unless it was lost on the way."""
        if self._loses(flow):
            return
        sender = flow.sender
        if not sender.alive and sender.killed and self.chance(self.faults.lost_with_sender):
            self.count("lost_with_sender")
            return
        deliver(message)

    def _hear(self, flow: Flow | None, hear: Callable[[], None]) -> None:
        if flow is None or not self._loses(flow):
            hear()

    # Processes.

    def _ends_of(self, process: Process) -> dict[tuple[int, bool], End]:
        """Return the ends of a process; on the first call, watch for its death."""
        if process.number not in self._ends:
            self._ends[process.number] = {}
            if process.alive:
                process.on_end(self._died)
        return self._ends[process.number]

    def _died(self, process: Process) -> None:
        """Reset the connections of a dead process, unless its power is cut."""
        is_dark = process.killed and self.chance(self.faults.power_cut)
        if is_dark:
            self.count("power_cut")
            dark_s = self._rng.uniform(*self.faults.power_cut_s)
            self._dark_until_s[process.number] = self.loop.time() + dark_s
        for listener in list(self._listeners.values()):
            if listener.process is process:
                self.unbind(listener)
        for end in list(self._ends_of(process).values()):
            end.hang_up(telling=not is_dark)
