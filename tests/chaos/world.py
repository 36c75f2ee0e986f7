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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import bucketq
from bucketq.clock import SystemClock
from bucketq.errors import UnavailableError
from bucketq.model.job import BrokerRecord
from bucketq.queue.register import Register
from bucketq.store.url import open_store
from tests.chaos.fleet import BrokerProcess, ClientProcess, Fleet
from tests.chaos.places import Place
from tests.chaos.programs import LARGEST_PAYLOAD_BYTES

BROKERS = 2
CLIENTS = (
    ("produce", "never"),
    ("produce", "inside"),
    ("produce", "never"),
    ("produce", "inside"),
    ("consume", "never"),
    ("consume", "inside"),
    ("consume", "never"),
    ("consume", "never"),
)
_LOOK_S = 0.05
_TOO_LONG_S = 60.0


@dataclass
class Events:
    """What was done to the processes, and what was seen in the object meanwhile."""

    counts: Counter[str] = field(default_factory=Counter)
    leader_kills: list[tuple[float, str]] = field(default_factory=list)
    """When a broker that led was killed, and the diary of the client that it was part of."""
    epochs: set[int] = field(default_factory=set)
    exits: list[str] = field(default_factory=list)
    """Brokers that ended as they should not."""


class World:
    """The processes of a run, and their keeper, who restarts whoever has ended."""

    def __init__(self, fleet: Fleet, place: Place, seed: int) -> None:
        self.fleet = fleet
        self.place = place
        self.seed = seed
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
            keepers += [asyncio.create_task(self._keep_client(slot)) for slot in range(8)]
            keepers.append(asyncio.create_task(self._look()))
            try:
                await self.until_led()
                await Nemesis(self).rage(duration_s)
                await self._drain()
            finally:
                for keeper in keepers:
                    keeper.cancel()
                ends = await asyncio.gather(*keepers, return_exceptions=True)
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

    async def _begin(self) -> None:
        async with bucketq.connect(self.place.url, mode="direct") as queue:
            await queue.config(
                lease_s=2.0,
                heartbeat_s=0.5,
                grace_s=1.0,
                clock_margin_s=1.0,
                max_attempts=1000,
                backoff={"base_s": 0.05, "factor": 1.0, "max_s": 0.1},
                archive_after_s=1.0,
                max_payload_bytes=LARGEST_PAYLOAD_BYTES,
            )
        for slot in range(BROKERS):
            self.brokers.append(self._serve(slot))
        for slot in range(len(CLIENTS)):
            self.clients.append(self._start_client(slot, 0))

    def _serve(self, slot: int) -> BrokerProcess:
        return self.fleet.serve(self.place.broker_urls[slot])

    def _start_client(self, slot: int, life: int) -> ClientProcess:
        role, launch = CLIENTS[slot]
        seed = hash((self.seed, slot, life))
        wish = {
            "launch": launch,
            "timeout_s": 0.5 if slot % 4 == 0 else 4.0,
            "pause_s": 0.12 if role == "produce" else 0.01,
        }
        return self.fleet.client(slot, self.place.client_url, role, seed, **wish)

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
            if self._is_over and CLIENTS[slot][0] == "produce":
                return
            await asyncio.sleep(0.1 + 0.4 * chance.random())
            life += 1
            self.clients[slot] = self._start_client(slot, life)

    def _register(self) -> Register:
        return Register(self._location.store, self._location.key, self.place.url, SystemClock())

    async def _look(self) -> None:
        """See every epoch that there is in the object."""
        register = self._register()
        while True:
            with suppress(UnavailableError):
                self.record = (await register.peek()).broker
                if self.record is not None:
                    self.events.epochs.add(self.record.epoch)
            await asyncio.sleep(_LOOK_S)

    async def _drain(self) -> None:
        """Let the producers end, and the consumers finish what is there."""
        self._is_over = True
        roles = zip(self.clients, CLIENTS, strict=True)
        await self._end_clients([client for client, (role, _) in roles if role == "produce"])
        register = self._register()
        deadline = time.monotonic() + _TOO_LONG_S
        while True:
            with suppress(UnavailableError):
                state = (await register.load()).state
                left = [job.id for job in state.jobs.by_id.values() if job.status != "done"]
                if not left:
                    break
            assert time.monotonic() < deadline, f"{len(left)} jobs are left: {left[:9]}"
            await asyncio.sleep(4 * _LOOK_S)
        flushed = await asyncio.to_thread(self.fleet.command, "archive", "flush", self.place.url)
        assert flushed.returncode == 0, flushed

    async def _end_clients(self, clients: list[ClientProcess]) -> None:
        for client in clients:
            client.send(signal.SIGTERM)
        for client in clients:
            await asyncio.to_thread(client.wait, _TOO_LONG_S)

    async def _end(self) -> None:
        """End everybody: whoever stands by before whoever leads, who is the last."""
        await self._end_clients(self.clients)
        for broker in self.brokers:
            await asyncio.to_thread(broker.wait_until_serving)
        leader = await self._last_leader()
        for broker in sorted(self.brokers, key=lambda broker: broker is leader):
            broker.send(signal.SIGTERM)
            code = await asyncio.to_thread(broker.wait)
            if code != 0:
                self.events.exits.append(f"exit code {code}: {broker.text()}")
        record = (await self._register().peek()).broker
        assert record is not None
        assert record.address == "", f"the address of {record} was not cleared"
        self.events.epochs.add(record.epoch)

    async def _last_leader(self) -> BrokerProcess:
        """Wait until one of the brokers leads: no client is left to take over."""
        register, deadline = self._register(), time.monotonic() + _TOO_LONG_S
        while True:
            record = (await register.peek()).broker
            if record is not None:
                self.events.epochs.add(record.epoch)
                for broker in self.brokers:
                    if broker.address == record.address:
                        return broker
            assert time.monotonic() < deadline, f"no broker leads: {record}"
            await asyncio.sleep(_LOOK_S)


class Nemesis:
    """Does to the processes of a world what was drawn from its seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/nemesis")
        self._counts = world.events.counts
        self._mends: dict[asyncio.TimerHandle, Callable[[], None]] = {}

    async def rage(self, duration_s: float) -> None:
        """Strike again and again; in the end everything is mended."""
        until = time.monotonic() + duration_s
        strikes = [*[self._kill] * 3, *[self._stop] * 2, self._terminate]
        strikes += [self._kill_client, self._stop_client]
        if self._world.place.broker_ways:
            strikes += [self._cut, self._cut, self._slow]
        deck = [self._kill]
        try:
            while time.monotonic() < until:
                await asyncio.sleep(0.3 + 0.7 * self._chance.random())
                if not deck:
                    deck = self._chance.sample(strikes, len(strikes))
                deck.pop()()
        finally:
            for timer, mend in self._mends.items():
                timer.cancel()
                mend()
            self._world.place.calm()

    def _victim(self) -> BrokerProcess | ClientProcess | None:
        """Mostly whoever leads, and else some broker; None: it is down already."""
        leader = self._world.leader()
        other = self._chance.choice(self._world.brokers)
        is_leader = self._chance.random() < 0.8
        victim = leader if is_leader and leader is not None else other
        if isinstance(victim, BrokerProcess):
            return victim if victim.returncode is None and victim.address else None
        return victim if victim is not None and victim.is_alive else None

    def _kill(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        if victim is self._world.leader():
            name = victim.diary.name if isinstance(victim, ClientProcess) else ""
            self._world.events.leader_kills.append((time.monotonic(), name))
            self._counts["kills of the leader"] += 1
        self._counts["kills"] += 1
        victim.send(signal.SIGKILL)

    def _stop(self) -> None:
        pause_s = self._chance.choice((0.5, 2.0, 5.0)) * (0.5 + self._chance.random())
        victim = self._victim()
        if victim is None or victim.is_stopped:
            return
        self._counts["stops"] += 1
        victim.send(signal.SIGSTOP)
        self._mend(pause_s, lambda: victim.send(signal.SIGCONT))

    def _terminate(self) -> None:
        victim = self._victim()
        if victim is not None and not victim.is_stopped:
            self._counts["terminations"] += 1
            victim.send(signal.SIGTERM)

    def _kill_client(self) -> None:
        self._counts["kills of clients"] += 1
        self._chance.choice(self._world.clients).send(signal.SIGKILL)

    def _stop_client(self) -> None:
        client = self._chance.choice(self._world.clients)
        pause_s = 1.0 + 3.0 * self._chance.random()
        if not client.is_stopped:
            self._counts["stops of clients"] += 1
            client.send(signal.SIGSTOP)
            self._mend(pause_s, lambda: client.send(signal.SIGCONT))

    def _cut(self) -> None:
        way = self._chance.choice(self._world.place.broker_ways)
        pause_s = self._chance.choice((1.0, 3.0, 14.0)) * (0.5 + self._chance.random())
        silent = self._chance.random() < 0.5
        if not way.is_cut:
            self._counts["cuts"] += 1
            way.cut(silent=silent)
            self._mend(pause_s, way.heal)

    def _slow(self) -> None:
        way = self._chance.choice(self._world.place.broker_ways)
        delay_s, pause_s = 0.8 * self._chance.random(), 5.0 * self._chance.random()
        if not way.is_cut:
            self._counts["slow storage"] += 1
            way.slow(delay_s)
            self._mend(pause_s, way.heal)

    def _mend(self, after_s: float, mend: Callable[[], None]) -> None:
        self._mends[asyncio.get_running_loop().call_later(after_s, mend)] = mend
