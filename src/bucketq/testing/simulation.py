"""One seed, one world: hosts that use a queue while everything that can go wrong does.

Each host is a simulated process with a clock that is wrong, a queue of the real code (direct or
group commit) over a link that loses, delays and repeats, and a few actors. For a while hosts are
killed, frozen, cut off and restarted, and their clocks jump. Then the faults end, every host is
killed, fresh workers come up, and the queue must come to rest with nothing lost.

``simulate(seed)`` returns a ``Report`` or raises: ``InvariantError`` where a promise was broken, or
whatever a host crashed with.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from unittest import mock

from bucketq.archive import Layout, SegmentWriter
from bucketq.codec import Document, Prepared, decode
from bucketq.errors import UnavailableError
from bucketq.model import state as state_module
from bucketq.queue.commit import GroupCommitQueue
from bucketq.queue.direct import DirectQueue
from bucketq.queue.register import Register, Settled
from bucketq.testing.actors import Actor, operate, produce, work
from bucketq.testing.clock import SimulatedClock
from bucketq.testing.faults import Faults
from bucketq.testing.history import History, Witness
from bucketq.testing.invariants import Chain, check
from bucketq.testing.link import StoreLink
from bucketq.testing.loop import VirtualLoop, run
from bucketq.testing.process import Process
from bucketq.testing.store import SimulatedStore

KEY = "queue.json"
_SETTINGS: dict[str, object] = {
    "lease_s": 10.0,
    "heartbeat_s": 2.0,
    "grace_s": 5.0,
    "max_attempts": 3,
    "archive_after_s": 2.0,
    "backoff": {"base_s": 0.5, "factor": 2.0, "max_s": 4.0},
}
_STORM_S = 90.0
_REST_S = 400.0


@dataclass(frozen=True)
class Report:
    """What happened in one world."""

    seed: int
    fingerprint: int
    steps: int
    virtual_s: float
    commits: int
    jobs: int
    calls: int
    unknown: int
    """How many calls ended with an unknown outcome, or never."""
    lost_leases: int
    archived: int
    """How many jobs left for the archive."""
    repeated: int
    """How many times a crash left one there again."""
    faults: dict[str, int]
    verdicts: dict[str, int]
    """How often a commit landed, was lost to another, or was too old to tell."""


class _CountingRegister(Register):
    """The real register; it counts the verdicts, to show that all of them were met."""

    verdicts: dict[str, int]

    async def commit(self, document: Document, prepared: Prepared) -> Settled:
        settled = await super().commit(document, prepared)
        name = settled.verdict.value
        self.verdicts[name] = self.verdicts.get(name, 0) + 1
        return settled


@dataclass
class _Host:
    name: str
    clock: SimulatedClock
    link: StoreLink
    queue_type: type[DirectQueue[str] | GroupCommitQueue[str]]
    timeout_s: float
    roles: tuple[str, ...]
    life: int = 0
    process: Process | None = None
    errors: list[BaseException] = field(default_factory=list)


class _World:
    """A store, some hosts, and what befalls them."""

    def __init__(self, loop: VirtualLoop, *, storm: bool) -> None:
        self.loop = loop
        self.storm = storm
        self.is_calm = False
        """Whether the end has come, in which fresh and quick workers clear up."""
        self.rng = loop.stream("world")
        self.store = SimulatedStore(
            loop,
            Faults.harsh() if storm else Faults.none(),
            content_etags=self.rng.random() < 0.5,
        )
        self.history = History(loop, self.store, KEY)
        self.settings = dict(_SETTINGS)
        if storm:
            # A short memory makes clients meet its end.
            self.settings["session_retention_s"] = self.rng.choice((2.0, 600.0))
            self.settings["max_sessions"] = self.rng.choice((3, 4096))
        self.tokens = 0
        self.verdicts: dict[str, int] = {}
        self.hosts = [self._make_host(number) for number in range(self.rng.randint(3, 6))]

    async def play(self) -> Chain:
        """Let it storm, let it come to rest, and judge."""
        for host in self.hosts:
            self._start(host)
        if self.storm:
            await self._rage()
        else:
            await asyncio.sleep(_STORM_S)
            self._check_leases()
        await self._rest()
        chain = check(self.history)
        self._check_rest(chain)
        return chain

    def _make_host(self, number: int) -> _Host:
        rng = self.rng
        return _Host(
            name=f"host{number}",
            clock=SimulatedClock(
                self.loop, offset_s=rng.uniform(-100, 100), drift=rng.uniform(-1e-3, 1e-3)
            ),
            link=self.store.connect(f"link{number}"),
            queue_type=rng.choice((DirectQueue[str], GroupCommitQueue[str])),
            timeout_s=rng.choice((5.0, 30.0)),
            roles=rng.choice(
                (("produce", "work"), ("produce", "produce"), ("work", "work"), ("work", "operate"))
            )
            if number
            else ("produce", "work", "operate"),
        )

    def _start(self, host: _Host) -> None:
        host.life += 1
        host.process = self.loop.spawn(f"{host.name}#{host.life}", lambda: self._live(host))

    async def _live(self, host: _Host) -> None:
        """What runs in a host's process."""
        name, rng = f"{host.name}#{host.life}", self.loop.stream(f"{host.name}#{host.life}")
        try:
            register = _CountingRegister(host.link, KEY, "simulated queue", host.clock)
            register.verdicts = self.verdicts
            queue = host.queue_type(
                register,
                host.clock,
                payload_type=str,
                worker=name,
                timeout_s=host.timeout_s,
                archive=SegmentWriter(host.link, Layout.of(KEY)),
            )
            async with queue:
                await _insist(lambda: queue.config(request=None, **self.settings))
                tasks = [
                    self.loop.create_task(
                        self._act(
                            role,
                            Actor(
                                Witness(self.history, f"{name}/{index}", queue),
                                rng,
                                self._new_token,
                                heartbeat_s=2.0,
                                forgetful=self.storm and not self.is_calm and rng.random() < 0.3,
                            ),
                        )
                    )
                    for index, role in enumerate(host.roles)
                ]
                for task in tasks:
                    await task
        except UnavailableError:
            return
        except Exception as error:
            host.errors.append(error)
            raise

    async def _act(self, role: str, actor: Actor) -> None:
        if role == "produce":
            await produce(
                actor, count=self.rng.randint(8, 25), pause_s=self.rng.choice((0.1, 1.0, 3.0))
            )
        elif role == "work":
            longest_s = self.rng.choice((0.5, 3.0, 20.0))
            await work(actor, longest_s=min(1.0, longest_s) if self.is_calm else longest_s)
        else:
            await operate(actor, self._known_jobs)

    async def _rage(self) -> None:
        """Kill, freeze, cut off and mislead hosts, until the time is over."""
        rng = self.rng
        while self.loop.time() < _STORM_S:
            await asyncio.sleep(rng.uniform(0, 6))
            host = rng.choice(self.hosts)
            if host.process is None or not host.process.alive:
                self._start(host)
                continue
            self._strike(rng, host, host.process)

    def _strike(self, rng: random.Random, host: _Host, process: Process) -> None:
        blow = rng.random()
        if blow < 0.25:
            process.kill_after(rng.randint(1, 60))
        elif blow < 0.45:
            process.freeze_after(rng.randint(1, 30), for_s=rng.uniform(1, 40))
        elif blow < 0.6:
            host.clock.jump(rng.uniform(-60, 60))
        elif blow < 0.8:
            whom = rng.choice((None, host.link, host.link))
            self.store.partition(whom, rng.choice(("both", "requests", "answers")))
            self.loop.call_in_world(rng.uniform(1, 20), self.store.heal, whom)

    async def _rest(self) -> None:
        """End all faults and all hosts; fresh workers must bring every job to its end."""
        for host in self.hosts:
            if host.process is not None:
                host.process.kill()
        self.store.calm()
        self.is_calm = True
        for host in self.hosts:
            host.roles = ("work",)
            self._start(host)
        register = Register(
            self.store.connect("driver"), KEY, "simulated queue", SimulatedClock(self.loop)
        )
        async with DirectQueue[str](register, SimulatedClock(self.loop)) as queue:
            await queue.resume()
        until = self.loop.time() + _REST_S
        while self.loop.time() < until and not self._is_at_rest():  # noqa: ASYNC110 - virtual
            await asyncio.sleep(5)

    def _is_at_rest(self) -> bool:
        found = self.store.peek(KEY)
        if found is None:
            return False
        state = decode(found.body, "final").state
        return all(job.status == "dead" for job in state.jobs)

    def _check_rest(self, chain: Chain) -> None:
        """What must hold once the faults have ended."""
        for host in self.hosts:
            for error in host.errors:
                raise error
        final = chain.final
        if final is None:
            chain.break_off("the queue comes up", "nothing was ever committed")
        for job in final.jobs:
            if job.status != "dead":
                chain.break_off("every job comes to its end", f"{job.id} is {job.status}")

    def _check_leases(self) -> None:
        """While nothing goes wrong, whatever the clocks show, no worker loses a job."""
        chain = check(self.history)
        for job_id, records in chain.records.items():
            if records[-1][1].lost_leases:
                chain.break_off("no lease is taken from a healthy worker", job_id)

    def _known_jobs(self) -> list[str]:
        found = self.store.peek(KEY)
        return list(decode(found.body, "peek").state.jobs.by_id) if found else []

    def _new_token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"


async def _insist(ask: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await ask()
        except UnavailableError:
            continue
        return


def simulate(seed: int, *, storm: bool = True) -> Report:
    """Play one world and judge it.

    Args:
        seed: What everything random in it comes from.
        storm: Whether anything goes wrong at all; without it the healthy must be left alone.
    """

    async def main(loop: VirtualLoop) -> Report:
        # A short ring makes writers meet its end.
        ring_length = loop.stream("ring").choice((3, 64)) if storm else 64
        with mock.patch.object(state_module, "RING_LENGTH", ring_length):
            return await play(loop)

    async def play(loop: VirtualLoop) -> Report:
        world = _World(loop, storm=storm)
        chain = await world.play()
        calls = world.history.calls
        jobs = [records[-1][1] for records in chain.records.values()]
        return Report(
            seed=seed,
            fingerprint=loop.fingerprint,
            steps=loop.steps,
            virtual_s=loop.time(),
            commits=len(world.store.history(KEY)),
            jobs=len(jobs),
            calls=len(calls),
            unknown=sum(
                call.ended_s is None or isinstance(call.error, UnavailableError) for call in calls
            ),
            lost_leases=sum(job.lost_leases for job in jobs),
            archived=len(chain.archived),
            repeated=sum(len(copies) - 1 for copies in chain.archived.values()),
            faults=world.store.injected,
            verdicts=world.verdicts,
        )

    return run(main, seed=seed)
