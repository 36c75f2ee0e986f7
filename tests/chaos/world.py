"""A run: brokers and clients on one queue, and somebody who does everything to them.

Whatever is done is drawn from one seed: the same seed makes the same plan. What comes of it
differs from run to run, for these are real processes.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import bucketq
from bucketq.clock import SystemClock
from bucketq.commit.objects.register import Register
from bucketq.errors import UnavailableError
from bucketq.model.records import BrokerRecord, JobRecord
from bucketq.store.url import open_store
from tests.chaos.casts import Cast
from tests.chaos.fleet import BrokerProcess, ClientProcess, Fleet
from tests.chaos.memory import Memory
from tests.chaos.nemesis import Nemesis
from tests.chaos.places import Place
from tests.chaos.ways import BrokerWay

BROKERS = 2
_LOOK_S = 0.05
_TOO_LONG_S = 60.0
_MEASURE_S = 1.0
_ORPHANS_S = 5.0


@dataclass
class Events:
    """What was done to the processes, and what was seen in the object meanwhile."""

    counts: Counter[str] = field(default_factory=Counter)
    leader_kills: list[tuple[float, str]] = field(default_factory=list)
    """When a broker that led was killed, and the diary of the client that it was part of."""
    epochs: set[int] = field(default_factory=set)
    exits: list[str] = field(default_factory=list)
    """Brokers that ended as they should not, and processes that outlived whoever started them."""
    memory: Memory = field(default_factory=Memory)
    emptied_s: float = 0.0
    """How long it took after the last fault until nothing was left to do."""


class World:
    """The processes of a run, and their keeper, who restarts whoever has ended."""

    def __init__(
        self, fleet: Fleet, place: Place, seed: int, cast: Cast, ways: list[BrokerWay]
    ) -> None:
        self.fleet = fleet
        self.place = place
        self.seed = seed
        self.cast = cast
        self.ways = ways
        self.events = Events()
        self.record: BrokerRecord | None = None
        self.brokers: list[BrokerProcess] = []
        self.clients: list[ClientProcess] = []
        self._location = open_store(place.url)
        self._is_over = False

    async def live(self, duration_s: float) -> None:
        """Set up, let the faults rage, and let everybody come to an end in peace."""
        try:
            await self._begin()
            keepers = [asyncio.create_task(self._keep_broker(slot)) for slot in range(BROKERS)]
            slots = range(len(self.cast.members))
            keepers += [asyncio.create_task(self._keep_client(slot)) for slot in slots]
            keepers.append(asyncio.create_task(self._look()))
            keepers.append(asyncio.create_task(self._measure()))
            try:
                await self.until_led()
                await Nemesis(self).rage(duration_s)
                await self._drain()
                await self._until_all_serve()
            finally:
                for keeper in keepers:
                    keeper.cancel()
                ends = await asyncio.gather(*keepers, return_exceptions=True)
                # Here, since it may be why the world did not come to its end.
                faults = [end for end in ends if isinstance(end, Exception)]
                assert not faults, faults
            await self._end()
        finally:
            await self._location.store.close()

    def leader(self) -> BrokerProcess | ClientProcess | None:
        """The process that leads now."""
        record = self.record
        if record is None or not record.address:
            return None
        return self.fleet.leaders().get(record.epoch)

    async def until_led(self) -> None:
        """Wait until somebody leads."""
        deadline = time.monotonic() + _TOO_LONG_S
        while self.leader() is None:
            assert time.monotonic() < deadline, "nobody leads"
            await asyncio.sleep(_LOOK_S)

    async def _until_all_serve(self) -> None:
        """Wait until the brokers are there that were told to end at the last moment."""
        deadline = time.monotonic() + _TOO_LONG_S
        while not all(broker.is_serving for broker in self.brokers):
            assert time.monotonic() < deadline, "a broker does not come back"
            await asyncio.sleep(_LOOK_S)

    async def _begin(self) -> None:
        async with bucketq.connect(self.place.url, mode="direct") as queue:
            await queue.configure(**self.cast.settings)
        for slot in range(BROKERS):
            self.brokers.append(self._serve(slot))
        for slot in range(len(self.cast.members)):
            self.clients.append(self._start_client(slot, 0))

    def name_of(self, process: BrokerProcess | ClientProcess) -> str:
        """What a process is called in the table."""
        if isinstance(process, BrokerProcess):
            return "brokers"
        return self.cast.members[process.number].called

    def _serve(self, slot: int) -> BrokerProcess:
        words = [self.place.broker_urls[slot]]
        if self.ways:
            way = self.ways[slot]
            words += ["--listen", way.listen, "--advertise", way.address]
        return self.fleet.serve(*words)

    def _start_client(self, slot: int, life: int) -> ClientProcess:
        member = self.cast.members[slot]
        seed = hash((self.seed, slot, life))
        return self.fleet.client(slot, self.place.client_url, member.role, seed, **member.wish)

    async def _keep_broker(self, slot: int) -> None:
        chance = random.Random(f"{self.seed}/broker/{slot}")
        while True:
            await asyncio.sleep(_LOOK_S)
            code = self.brokers[slot].returncode
            if code is None:
                continue
            if code not in {0, -signal.SIGKILL, -signal.SIGTERM}:
                self.events.exits.append(f"exit code {code}: {self.brokers[slot].text()}")
            await asyncio.sleep(0.2 + 0.8 * chance.random())
            self.brokers[slot] = self._serve(slot)

    async def _keep_client(self, slot: int) -> None:
        chance, life = random.Random(f"{self.seed}/client/{slot}"), 0
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.clients[slot].is_alive:
                continue
            if self._is_over and self.cast.members[slot].role == "produce":
                return
            await asyncio.sleep(0.1 + 0.4 * chance.random())
            if self._is_over and self.cast.members[slot].role == "produce":
                return  # It would push after everything was found done.
            life += 1
            self.clients[slot] = self._start_client(slot, life)

    def _register(self) -> Register:
        return Register(self._location.store, self._location.key, self.place.url, SystemClock())

    async def _look(self) -> None:
        """See every epoch that there is in the object."""
        register = self._register()
        while True:
            with suppress(UnavailableError):
                self.record = (await register.heading.read()).broker
                if self.record is not None:
                    self.events.epochs.add(self.record.epoch)
            await asyncio.sleep(_LOOK_S)

    async def _measure(self) -> None:
        """See how much memory everybody uses."""
        memory = self.events.memory
        while True:
            for broker in self.brokers:
                memory.note("brokers", broker.log.stem, broker.pid, time.monotonic())
            for client in self.clients:
                memory.note(self.name_of(client), client.diary.name, client.pid, time.monotonic())
            await asyncio.sleep(_MEASURE_S)

    async def _drain(self) -> None:
        """Let the producers end, and the others finish what is there."""
        self._is_over = True
        began = time.monotonic()
        roles = zip(self.clients, self.cast.members, strict=True)
        await self._end_clients([client for client, member in roles if member.role == "produce"])
        register = self._register()
        deadline = time.monotonic() + _TOO_LONG_S
        while True:
            with suppress(UnavailableError):
                state = (await register.load()).state
                jobs = state.jobs.by_id.values()
                left = [job for job in jobs if job.status in {"queued", "running"}]
                if not left and not state.cold.rows.count("ready", "later"):
                    break
            assert time.monotonic() < deadline, self._standstill(left)
            await asyncio.sleep(4 * _LOOK_S)
        self.events.emptied_s = time.monotonic() - began
        async with bucketq.connect(self.place.url, mode="direct") as queue:
            await queue.purge()  # The dead are to be in the archive as well.
        flushed = await asyncio.to_thread(self.fleet.command, "archive", "flush", self.place.url)
        assert flushed.returncode == 0, flushed

    def _standstill(self, left: list[JobRecord]) -> str:
        """Why jobs are left in peace: who has them, and what everybody did last."""
        lines = [f"{len(left)} jobs are left, with {self.record}:", *map(str, left[:9])]
        for broker in self.brokers:
            lines += [f"{broker.log.stem}, code {broker.returncode}", *broker.tail()]
        for client in self.clients:
            lines += [
                f"{client.diary.name}, alive {client.is_alive}",
                *map(str, client.lines()[-3:]),
            ]
        return "\n".join([*lines, self.fleet.complaints()])

    async def _end_clients(self, clients: list[ClientProcess]) -> None:
        for client in clients:
            client.send(signal.SIGTERM)
        for client in clients:
            await asyncio.to_thread(client.wait, _TOO_LONG_S)

    async def _end(self) -> None:
        """End everybody: whoever stands by before whoever leads, who is the last."""
        await self._end_clients(self.clients)
        await self._see_that_nobody_is_left()
        leader = await self._last_leader()
        for broker in sorted(self.brokers, key=lambda broker: broker is leader):
            broker.send(signal.SIGTERM)
            code = await asyncio.to_thread(broker.wait)
            if code != 0:
                self.events.exits.append(f"exit code {code}: {broker.text()}")
        record = (await self._register().heading.read()).broker
        assert record is not None
        assert record.address == "", f"the address of {record} was not cleared"
        self.events.epochs.add(record.epoch)

    async def _see_that_nobody_is_left(self) -> None:
        """Nobody was killed this time: whoever a worker has started ended with it, or before."""
        deadline = time.monotonic() + _ORPHANS_S
        while orphans := self.fleet.strangers():
            if time.monotonic() > deadline:
                self.events.exits.append(f"these outlived whoever started them: {orphans}")
                return
            await asyncio.sleep(_LOOK_S)

    async def _last_leader(self) -> BrokerProcess:
        """Wait until one of the brokers leads: no client is left to take over."""
        register, deadline = self._register(), time.monotonic() + _TOO_LONG_S
        while True:
            record = (await register.heading.read()).broker
            if record is not None:
                self.events.epochs.add(record.epoch)
                for broker in self.brokers:
                    if broker.address == record.address:
                        return broker
            assert time.monotonic() < deadline, f"no broker leads: {record}"
            await asyncio.sleep(_LOOK_S)
