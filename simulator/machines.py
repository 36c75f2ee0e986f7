"""The machines of a simulated cluster, and the programs that run on them.

A machine has a wrong clock, a link to the store, a transport, and a lock that its processes share.
A program is started on a machine and restarted after its process has died: a broker, or a user of
a queue in one of the modes. All programs run the real code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.broker.takeover import Identity
from bucketq.client.addresses import AddressFinder
from bucketq.client.discovery import Finder, ObjectFinder
from bucketq.client.launcher import HostLock, InsideLauncher, Launcher
from bucketq.client.remote_committer import RemoteCommitter
from bucketq.codec.document import Document, Prepared
from bucketq.commit.base import Committer
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.queue_history import DEFAULT_HISTORY_POLICY, HistoryPolicy
from bucketq.commit.objects.register import Register, Settled
from bucketq.commit.objects.segment_policy import DEFAULT_POLICY, SegmentPolicy
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.simulated_process import Process
from bucketq.testing.store_link import StoreLink
from bucketq.testing.virtual_loop import VirtualLoop
from simulator.simulated_transport import SimulatedTransport

ProgramKind = Literal[
    "direct",
    "group",
    "serve",
    "auto",
    "spawn",
    "remote",
    "frugal",
    "address",
    "stranger",
]
"""The kinds of programs.

``direct`` and ``group`` write the object themselves. ``serve`` is a broker, as ``bucketq serve``
starts it, and ``stranger`` a broker of another queue. The others are clients. If there is no
broker, ``auto`` starts one inside its process, ``spawn`` starts one as another process, ``frugal``
writes directly, and ``remote`` waits; ``address`` knows the addresses of brokers only.
"""

CLIENTS: tuple[ProgramKind, ...] = ("auto", "spawn", "remote", "frugal", "address")
LEADERS: tuple[ProgramKind, ...] = ("serve", "auto")
"""Programs whose process may lead; what such a process writes, it writes as a broker."""

QUEUE = "jobs"
"""The name under which brokers serve the queue."""
OTHER_KEY = "others/queue.json"
"""The key of the queue that ``stranger`` programs serve."""
PORT = 7700
"""The port at which ``address`` clients look for brokers."""
_IDLE_EXIT_S = 20.0  # Short enough that brokers exit, and are started again, in one simulation.
_IDLE_LOOK_S = 0.5

OpenQueue = AbstractAsyncContextManager[Any]


@dataclass
class ClusterCounters:
    """Counts of events inside the processes of a cluster."""

    verdicts: dict[str, int] = field(default_factory=dict)
    """How many commits landed, lost a race, or were too old to decide."""
    depositions: int = 0
    """How many times a leader found that another broker had taken over."""


class CountingRegister(Register):
    """The real register, with counts of its verdicts, to show that all of them occur."""

    counters: ClusterCounters

    async def commit(self, document: Document, prepared: Prepared) -> Settled:
        """Commit, and count the verdict."""
        settled = await super().commit(document, prepared)
        name = settled.verdict.value
        self.counters.verdicts[name] = self.counters.verdicts.get(name, 0) + 1
        return settled


class CountingBroker(Broker):
    """The real broker, with a count of how often it was deposed."""

    counters: ClusterCounters

    async def _lead(self, identity: Identity, after: int) -> None:
        before = self._candidacy.depositions
        try:
            await super()._lead(identity, after)
        finally:
            self.counters.depositions += self._candidacy.depositions - before


@dataclass
class Machine:
    """A host: what the processes on it share."""

    name: str
    loop: VirtualLoop
    clock: SimulatedClock
    link: StoreLink
    transport: SimulatedTransport
    lock_holder: Process | None = None


class SimulatedLock(HostLock):
    """The lock of a simulated machine. Like a file lock, it is free once its holder has died."""

    def __init__(self, machine: Machine) -> None:
        """Lock the queue of the cluster; no file is touched."""
        super().__init__("simulated")
        self._machine = machine

    def take(self) -> bool:
        """Take the lock without waiting; return whether the running process has it."""
        machine, process = self._machine, self._machine.loop.current_process()
        if machine.lock_holder not in (None, process) and machine.lock_holder.alive:
            return False
        machine.lock_holder = process
        return True

    def give_to(self, process: Process) -> None:
        """Pass the lock to another process."""
        self._machine.lock_holder = process

    def release(self) -> None:
        """Release the lock if the running process holds it."""
        if self._machine.lock_holder is self._machine.loop.current_process():
            self._machine.lock_holder = None


@dataclass
class Program:
    """A program on a machine. After its process has died it is restarted under the same name."""

    name: str
    machine: Machine
    kind: ProgramKind
    timeout_s: float = 30.0
    roles: tuple[str, ...] = ()
    listen: str = ""
    addresses: tuple[str, ...] = ()
    """The addresses that an ``address`` client tries."""
    takeover: bool = False
    """Whether it takes over by force at its next start."""
    idle_exit_s: float = 0.0
    life: int = 0
    process: Process | None = None
    broker: Broker | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to shut it down gracefully, like SIGTERM."""
    errors: list[BaseException] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        """Whether its process exists, frozen or not."""
        return self.process is not None and self.process.alive

    @property
    def is_spawned(self) -> bool:
        """Whether a client started it."""
        return self.idle_exit_s > 0

    @property
    def leads(self) -> bool:
        """Whether it is alive and believes that it leads."""
        broker = self.broker
        return self.is_alive and broker is not None and broker.leader is not None


@dataclass
class QueueFactory:
    """Makes the queues and brokers of programs."""

    key: str
    counters: ClusterCounters
    spawn: Callable[[Program], Process]
    """Starts a program, for clients that start brokers as processes."""
    history_policy: HistoryPolicy = DEFAULT_HISTORY_POLICY
    """When processes keep, copy and sweep the history."""
    policy: SegmentPolicy = DEFAULT_POLICY
    """When processes merge and sweep segments."""

    def queue_of(self, program: Program) -> OpenQueue:
        """Make the queue of a program; it is not open yet."""
        name = self.name_of(program)
        return Queue[str](
            self._committer(program, name),
            program.machine.clock,
            payload_type=str,
            worker=name,
            timeout_s=program.timeout_s,
        )

    def _committer(self, program: Program, name: str) -> Committer:
        machine = program.machine
        if program.kind in CLIENTS:
            finder = self._finder(program, name)
            return RemoteCommitter(
                finder, "simulated queue", machine.clock, timeout_s=program.timeout_s
            )
        kind = DirectCommitter if program.kind == "direct" else GroupCommitter
        return kind(
            self.register(machine),
            machine.clock,
            timeout_s=program.timeout_s,
            archive=self._archive(machine),
        )

    async def serve(self, program: Program) -> None:
        """Run a broker until the program is asked to stop."""
        loop = asyncio.get_running_loop()
        server = self._server(program, QUEUE if program.kind == "serve" else "others")
        program.takeover = False
        await server.start(program.listen)
        tasks = [loop.create_task(server.until_over()), loop.create_task(program.stopped.wait())]
        if program.idle_exit_s:
            tasks.append(loop.create_task(_until_idle(server, program.idle_exit_s)))
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        await server.stop()
        for task in done:
            task.result()

    def register(self, machine: Machine, key: str = "") -> Register:
        """Make a register of the queue's object, or of another one."""
        place = key or self.key
        register = CountingRegister(machine.link, place, "simulated queue", machine.clock)
        register.counters = self.counters
        register.segments.policy = self.policy
        register.history.policy = self.history_policy
        return register

    def name_of(self, program: Program) -> str:
        """Return the name of a program, with the number of its current process."""
        return f"{program.name}#{program.life}"

    def _archive(self, machine: Machine, key: str = "") -> ArchiveWriter:
        return ArchiveWriter(machine.link, Layout.of(machine.link.url, key or self.key))

    def _server(self, program: Program, queue: str) -> Server:
        machine = program.machine
        key = OTHER_KEY if program.kind == "stranger" else self.key
        broker = CountingBroker(
            self.register(machine, key),
            machine.clock,
            machine.transport,
            archive=self._archive(machine, key),
            takeover=program.takeover,
        )
        broker.counters = self.counters
        program.broker = broker
        server = Server(machine.transport, machine.clock, machine.name)
        server.add(queue, broker)
        return server

    def _finder(self, program: Program, name: str) -> Finder:
        machine = program.machine
        if program.kind == "address":
            return AddressFinder(program.addresses, QUEUE, machine.transport, name)

        async def write_directly() -> DirectCommitter:
            direct = DirectCommitter(
                self.register(machine),
                machine.clock,
                timeout_s=program.timeout_s,
                archive=self._archive(machine),
            )
            await direct.open()
            return direct

        register = self.register(machine)
        return ObjectFinder(
            register.heading,
            machine.transport,
            machine.name,
            create=partial(register.open, create=True),
            client=name,
            launcher=self._launcher(program),
            write_directly=write_directly if program.kind == "frugal" else None,
        )

    def _launcher(self, program: Program) -> Launcher | None:
        machine = program.machine
        lock = SimulatedLock(machine)
        if program.kind == "spawn":
            return SimulatedSpawnLauncher(self, machine, lock)
        if program.kind != "auto":
            return None
        server = self._server(program, QUEUE)
        broker = server.brokers[QUEUE]
        return InsideLauncher(server, broker, lock, f"{machine.name}:0")


class SimulatedSpawnLauncher:
    """Starts a broker as another process of the machine; the broker exits when it is idle."""

    broker = None

    def __init__(self, factory: QueueFactory, machine: Machine, lock: SimulatedLock) -> None:
        """Start brokers on ``machine``."""
        self._trade = factory
        self._machine = machine
        self._lock = lock

    async def launch(self, after: int) -> None:
        """Start a broker and pass the lock to it; the lock is free again when it exits."""
        del after
        if not self._lock.take():
            return
        machine = self._machine
        child = Program(
            name=f"{machine.name}/spawned",
            machine=machine,
            kind="serve",
            listen=f"{machine.name}:0",
            idle_exit_s=_IDLE_EXIT_S,
        )
        self._lock.give_to(self._trade.spawn(child))

    async def close(self) -> None:
        """Release the lock; a broker that was started keeps running."""
        self._lock.release()


async def _until_idle(server: Server, idle_exit_s: float) -> None:
    loop = asyncio.get_running_loop()
    while server.idle_s(loop.time()) < idle_exit_s:  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(_IDLE_LOOK_S)
