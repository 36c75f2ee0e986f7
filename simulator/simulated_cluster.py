"""A simulated cluster: a store, a network, machines, and the programs that run on them.

It starts and restarts processes and keeps track of them. ``fault_schedule`` decides which faults
they meet, ``actors`` what they do, and the modules of invariants check the result.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from collections.abc import Awaitable, Callable
from hashlib import blake2b

from bucketq.codec.heading import read_heading
from bucketq.commit.objects.queue_history import HistoryPolicy
from bucketq.commit.objects.segment_policy import SegmentPolicy
from bucketq.errors import InvalidRequestError, QueueNotFoundError, UnavailableError
from bucketq.model.records import BrokerRecord
from bucketq.model.settings import Settings
from bucketq.model.state import State
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.simulated_process import Process
from bucketq.testing.virtual_loop import VirtualLoop
from simulator.actors.batch_actors import consume, write
from simulator.actors.bulk_actors import BulkPublisher
from simulator.actors.crowd_actors import crowd
from simulator.actors.expiry_actors import produce_expiring
from simulator.actors.follow_up_actors import follow
from simulator.actors.group_actors import produce_groups, set_limits
from simulator.actors.link_actors import produce_linked
from simulator.actors.payload_actors import produce_large
from simulator.actors.queue_actors import KINDS, Actor, operate, produce, work
from simulator.actors.schedule_actors import keep_schedules
from simulator.actors.unique_actors import produce_unique
from simulator.actors.wait_actors import wait_for_jobs
from simulator.actors.worker_actors import EngineSetup, run_engines
from simulator.call_log import CallLog, RecordingQueue
from simulator.invariants.history_invariants import named_by_copies
from simulator.invariants.segment_invariants import left_over, segment_key
from simulator.judge import Judge
from simulator.machines import (
    CLIENTS,
    LEADERS,
    ClusterCounters,
    Machine,
    Program,
    ProgramKind,
    QueueFactory,
)
from simulator.simulated_network import SimulatedNetwork
from simulator.watched_store import WatchedStore
from simulator.whole_queue import WholeReader
from simulator.worker_log import WorkerLog

KEY = "queue.json"
CLOCKS_DIFFER_S = 200.0
"""How far the clocks of two machines are apart at most: minutes, as where no time is kept."""
FAST_S = (0.005, 0.08)
"""Bounds of the time that a request to the store takes."""
# More steps than any simulation has: a kill that was scheduled is called off.
NEVER = 10**12
# Short times, so that leases expire, retries happen and jobs are archived within 90 s.
SETTINGS: dict[str, object] = {
    "lease_s": 10.0,
    "heartbeat_s": 2.0,
    "grace_s": 5.0,
    "max_attempts": 3,
    "archive_after_s": 2.0,
    "backoff": {"base_s": 0.5, "factor": 2.0, "max_s": 4.0},
    # So that a seed takes the same course if the environment lets new queues spill early.
    "spill_bytes": Settings().spill_bytes,
}


class SimulatedCluster:
    """A store, a network, some machines and their programs."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Make a cluster without machines and without faults."""
        self.loop = loop
        self.rng = loop.stream("world")
        self.faults_ended = False
        """Whether the faults are over; from then on workers are quick and reliable."""
        self.makes_mistakes = False
        """Whether some callers give up, and some workers skip heartbeats."""
        self.store = WatchedStore(loop, latency_s=FAST_S, content_etags=self.rng.random() < 0.5)
        self.store.watched = KEY
        self._reader = WholeReader(self._read_segment)
        self.network = SimulatedNetwork(loop)
        self.history = CallLog(loop, self.store, KEY)
        self.judge = Judge(self.history)
        self.settings = dict(SETTINGS)
        self.worker_log = WorkerLog(self.history)
        self.kinds: tuple[str, ...] = KINDS
        """The kinds of job that are pushed."""
        self.has_crashers = False
        """Whether some handlers kill their process."""
        self.checkpoints: dict[str, int] = {}
        """The last acknowledged position of each writer; it survives the writer's process."""
        self.counters = ClusterCounters()
        self.factory = QueueFactory(KEY, self.counters, self._spawn)
        self.is_deep = False
        """Whether it spills, merges and sweeps all the time."""
        self.machines: list[Machine] = []
        self.programs: list[Program] = []
        self._tokens = 0
        self._spawned = 0
        self._looked, self._epoch, self._taken_s = 0, 0, 0.0

    def spill_early(self, rng: random.Random) -> None:
        """Let all processes spill, merge and sweep as often as it can be done in a simulation.

        A segment may be introduced for a few versions only, so that some come too late.
        """
        self.is_deep = True
        # As if a restore had begun: the segments of an incarnation that no head has named yet.
        body = b"rows of a queue that is being restored\n"
        name = f"{1:020d}-{blake2b(body, digest_size=8).hexdigest()}"
        self.store.put(segment_key(KEY, "another", name), body, "restore")
        self.settings["spill_bytes"] = rng.choice((300, 300, 1000))
        self.settings["reservation_retention_s"] = 20.0
        self.factory.policy = SegmentPolicy(
            least_versions=rng.choice((3, 6, 12, 40)),
            pass_s=rng.choice((0.2, 1.0)),
            neighbours=rng.choice((2, 3, 4)),
            most_ranges=rng.choice((2, 6, 4096)),
            most_keys=2,
            first_sweep_s=rng.uniform(2, 10),
            sweep_s=rng.uniform(2, 10),
        )

    def remember(self, rng: random.Random) -> None:
        """Let the queue have a history, which is moved, copied and forgotten all the time."""
        self.settings["history_retention_s"] = rng.choice((10.0, 30.0, 3600.0))
        self.factory.history_policy = HistoryPolicy(
            pass_s=rng.choice((0.2, 1.0)),
            copy_s=rng.uniform(0.5, 5),
            most_copies=1000,
            patience_s=rng.choice((0.5, 10.0)),
            neighbours=8,
            first_sweep_s=rng.uniform(2, 10),
            sweep_s=rng.uniform(2, 10),
        )

    def add_machine(self) -> Machine:
        """Add a machine with a wrong clock."""
        name, rng = f"host{len(self.machines)}", self.rng
        clock = SimulatedClock(
            self.loop,
            offset_s=rng.uniform(-CLOCKS_DIFFER_S / 2, CLOCKS_DIFFER_S / 2),
            drift=rng.uniform(-1e-3, 1e-3),
        )
        link = self.store.connect(name)
        machine = Machine(name, self.loop, clock, link, self.network.host(name))
        self.machines.append(machine)
        return machine

    def add(self, machine: Machine, kind: ProgramKind, **options: object) -> Program:
        """Add a program to a machine without starting it."""
        number = sum(program.machine is machine for program in self.programs)
        program = Program(f"{machine.name}/{kind}{number}", machine, kind, **options)  # type: ignore[arg-type]
        self.programs.append(program)
        return program

    def start(self, program: Program) -> Process:
        """Start the process of a program."""
        program.life += 1
        program.stopped = asyncio.Event()
        program.broker = None
        name = self.factory.name_of(program)
        if program.kind in LEADERS:
            self.history.leaders.add(name)
        if program.takeover:
            self.history.forced.add(name)
        if program.kind in CLIENTS:
            self.history.clients.add(name)
        program.process = process = self.loop.spawn(name, lambda: self._run_program(program))
        process.on_end(self._note_end)
        return process

    def end_faults(self, *, restarts_all: bool) -> None:
        """End all faults and stop producing jobs; optionally restart every program."""
        self.store.end_faults()
        self.network.end_faults()
        for machine in self.machines:
            machine.link.latency_s = FAST_S
        self.faults_ended = True
        for program in self.programs:
            process = program.process
            if process is not None and (restarts_all or program.kind == "stranger"):
                process.kill()
            elif process is not None:
                process.thaw()
                process.kill_after(NEVER)
        self.programs = [program for program in self.programs if program.kind != "stranger"]
        for address in self.network.addresses():
            self.network.vacate(address)
        for program in self.programs:
            if program.roles:
                program.roles = ("engine",) if "engine" in program.roles else ("work",)
        self.restart_dead()

    def restart_dead(self) -> None:
        """Start every program that is not running, except brokers that a client had started."""
        for program in self.programs:
            self.restart(program)

    def restart(self, program: Program, *, takeover: bool = False) -> None:
        """Start a program that is not running, unless clients start it on demand."""
        if not program.is_alive and not program.is_spawned:
            program.takeover = takeover and program.kind == "serve"
            self.start(program)

    def state(self) -> State | None:
        """Return the state of the queue now, with the rows that are in segments."""
        found = self.store.peek(KEY)
        return self._reader.whole(found.body, "the object").whole if found else None

    def left_over(self) -> list[str]:
        """Return the segments that a sweep would delete now."""
        found = self.store.peek(KEY)
        if found is None:
            return []
        head = self._reader.whole(found.body, "the object").head
        if "segments" not in head.requires:
            return []  # None was ever named, and processes do not look for more.
        kept = named_by_copies(self.store, KEY, head)
        return [
            key
            for key in left_over(self.store, KEY, head)
            if key.rpartition("/")[2].removesuffix(".jsonl") not in kept
        ]

    def _read_segment(self, incarnation: str, segment_id: str) -> bytes | None:
        found = self.store.peek(segment_key(KEY, incarnation, segment_id))
        return found.body if found else None

    def record(self) -> BrokerRecord | None:
        """Return the broker that is recorded in the object."""
        found = self.store.peek(KEY)
        broker = read_heading(found.body, "the object").broker if found else None
        return broker if broker and broker.address else None

    def taken_over_s(self) -> float:
        """Return when the current epoch began."""
        commits = self.store.history(KEY)
        for commit in commits[self._looked :]:
            broker = read_heading(commit.body or b"", "a version").broker
            if broker is not None and broker.epoch != self._epoch:
                self._epoch, self._taken_s = broker.epoch, commit.time_s
        self._looked = len(commits)
        return self._taken_s

    def leader(self) -> Program | None:
        """Return the program that leads and is recorded in the object, running or frozen."""
        record = self.record()
        for program in self.programs:
            leader = program.broker.leader if program.broker and program.leads else None
            if leader is not None and record is not None and leader.epoch == record.epoch:
                return program
        return None

    def known_jobs(self) -> list[str]:
        """Return the ids of all jobs in the queue, for an operator to choose from."""
        state = self.state()
        return list(state.jobs.by_id) if state else []

    def new_token(self) -> str:
        """Return a payload that no other job has."""
        self._tokens += 1
        return f"token-{self._tokens}"

    def _spawn(self, program: Program) -> Process:
        self._spawned += 1
        program.life = self._spawned - 1  # So that no two have the same name.
        self.programs = [each for each in self.programs if each.is_alive or not each.is_spawned]
        self.programs.append(program)
        return self.start(program)

    def _note_end(self, process: Process) -> None:
        self.history.deaths[process.name] = self.loop.time()

    async def _run_program(self, program: Program) -> None:
        """Run a program: the main coroutine of its process."""
        try:
            if program.kind in ("serve", "stranger"):
                await self.factory.serve(program)
            else:
                await self._run_actors(program)
        except UnavailableError:
            return  # It could not be opened in time; the fault schedule may restart it.
        except (InvalidRequestError, QueueNotFoundError) as error:
            # A broker of another queue has its address, or the one where it looked for its queue.
            if "cannot listen" not in str(error) and "is not served at" not in str(error):
                program.errors.append(error)
                raise
        except Exception as error:
            program.errors.append(error)
            raise

    async def _run_actors(self, program: Program) -> None:
        """Open a queue and run actors on it until they finish or the program is asked to stop."""
        name = self.factory.name_of(program)
        rng = self.loop.stream(name)
        queue = self.factory.queue_of(program)
        async with queue as opened:
            await _retry(lambda: opened.configure(request=None, **self.settings))
            acting = [
                self.loop.create_task(
                    self._act(role, self._actor(program, f"{name}/{index}", rng, opened))
                )
                for index, role in enumerate(program.roles)
                if role != "engine"
            ]
            engines = [
                self.loop.create_task(
                    run_engines(self._setup(program, f"{name}/{index}", rng, opened))
                )
                for index, role in enumerate(program.roles)
                if role == "engine"
            ]
            stopped = self.loop.create_task(program.stopped.wait())
            all_done = self.loop.create_task(_all([*acting, *engines]))
            await asyncio.wait([stopped, all_done], return_when=asyncio.FIRST_COMPLETED)
            program.stopped.set()  # Engines end by themselves when they are drained.
            for task in (stopped, all_done, *acting):
                task.cancel()
            for task in (*acting, *engines):
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()

    def _actor(self, program: Program, name: str, rng: random.Random, queue: Queue[str]) -> Actor:
        machine, publisher = program.machine, None
        # A process that may lead is known to write as a broker only.
        if self.is_deep and program.kind not in LEADERS:
            publisher = BulkPublisher(machine.link, KEY, machine.clock, rng, program.timeout_s)
        return Actor(
            RecordingQueue(self.history, name, queue, reports="wait" in program.roles),
            rng,
            self.new_token,
            heartbeat_s=2.0,
            faults_ended=lambda: self.faults_ended,
            gives_up=self.makes_mistakes,
            skips_heartbeats=self.makes_mistakes and rng.random() < 0.3,
            kinds=self.kinds,
            most=20 if self.is_deep else 4,
            publisher=publisher,
        )

    def _setup(
        self, program: Program, name: str, rng: random.Random, queue: Queue[str]
    ) -> EngineSetup:
        return EngineSetup(
            name=name,
            process=self.factory.name_of(program),
            queue=queue,
            clock=program.machine.clock,
            rng=rng,
            worker_log=self.worker_log,
            lease_s=float(str(self.settings["lease_s"])),
            stopped=program.stopped,
            faults_ended=lambda: self.faults_ended,
            crash=lambda: self._crash(program),
        )

    def _crash(self, program: Program) -> bool:
        """Kill the process of a handler; return False if all faults have ended and it may lead."""
        if program.process is None or (self.faults_ended and program.kind in LEADERS):
            return False
        program.process.kill()
        self.loop.call_in_environment(self.rng.uniform(0.5, 5), self.restart, program)
        return True

    async def _act(self, role: str, actor: Actor) -> None:
        rng = self.rng
        if role == "produce":
            await produce(actor, count=rng.randint(8, 25), pause_s=rng.choice((0.1, 1.0, 3.0)))
        elif role == "work":
            await work(actor, longest_s=rng.choice((0.5, 3.0, 20.0)))
        elif role == "follow":
            await follow(actor, longest_s=rng.choice((0.5, 3.0, 20.0)))
        elif role == "consume":
            lease_s = float(str(self.settings["lease_s"]))
            await consume(actor, rng.choice((0.5, 3.0, 20.0)), lease_s)
        elif role == "write":
            await write(actor, self.checkpoints, rng.randint(5, 15), rng.choice((0.1, 1.0, 3.0)))
        elif role in _PRODUCERS:
            push = _PRODUCERS[role]
            await push(actor, rng.randint(10, 30), rng.choice((0.1, 0.5, 1.0)))
        elif role == "limits":
            await set_limits(actor)
        elif role == "schedule":
            await keep_schedules(actor)
        elif role == "wait":
            await wait_for_jobs(actor, self.known_jobs)
        else:
            await operate(actor, self.known_jobs)


_PRODUCERS = {
    "crowd": crowd,
    "expiry": produce_expiring,
    "groups": produce_groups,
    "links": produce_linked,
    "payloads": produce_large,
    "unique": produce_unique,
}
"""The producers of jobs that are special, by role."""


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        await asyncio.wait([task])
        if task.done() and not task.cancelled() and task.exception() is not None:
            return


async def _retry(ask: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await ask()
        except UnavailableError:
            continue
        return
