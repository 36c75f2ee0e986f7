"""Does to the processes of a run what was drawn from its seed.

While the second third of a run goes on, one of the brokers and some of the others are neither
killed nor told to end, so that there are processes that grow old under everything else: their
memory is to stay as it is.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.fleet import BrokerProcess, ClientProcess
from tests.chaos.ways import DIRECTIONS, FAULTS

if TYPE_CHECKING:
    from tests.chaos.world import World

_SPARED_SHARE = 3
"""Of so many clients and workers one is spared, while somebody is."""


class Nemesis:
    """Kills, stops, ends and cuts off."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}/nemesis")
        self._counts = world.events.counts
        self._mends: dict[asyncio.TimerHandle, Callable[[], None]] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._spares = (0.0, 0.0)
        """From when until when somebody is spared."""
        self._spared_broker = self._chance.randrange(len(world.place.broker_urls))

    async def rage(self, duration_s: float) -> None:
        """Strike again and again; in the end everything is mended."""
        world, began = self._world, time.monotonic()
        self._spares = (began + duration_s / 3, began + duration_s * 2 / 3)
        strikes = [*[self._kill] * 3, *[self._stop] * 2, self._terminate]
        strikes += [self._kill_client, self._stop_client]
        if world.cast.has_workers:
            strikes += [*[self._kill_client] * 2, *[self._stop_client] * 3]
            strikes += [self._terminate_client] * 2
        if world.ways:
            strikes += [self._part] * 3
        if world.place.broker_ways:
            strikes += [self._cut, self._cut, self._slow, self._ambush]
        deck = [self._kill]
        try:
            while time.monotonic() < began + duration_s:
                await asyncio.sleep(0.3 + 0.7 * self._chance.random())
                if not deck:
                    deck = self._chance.sample(strikes, len(strikes))
                deck.pop()()
        finally:
            for timer in self._timers:
                timer.cancel()
            for timer, mend in self._mends.items():
                timer.cancel()
                mend()
            world.place.calm()

    def _spares_now(self) -> bool:
        return self._spares[0] <= time.monotonic() < self._spares[1]

    def _is_spared(self, victim: BrokerProcess | ClientProcess) -> bool:
        """Whether it is to live on, whatever else is done to it."""
        if not self._spares_now():
            return False
        if isinstance(victim, BrokerProcess):
            return victim is self._world.brokers[self._spared_broker]
        return victim.number % _SPARED_SHARE == 0

    def _victim(self) -> BrokerProcess | ClientProcess | None:
        """Mostly whoever leads, and else some broker; None: it is down already."""
        leader = self._world.leader()
        other = self._chance.choice(self._world.brokers)
        is_leader = self._chance.random() < 0.8
        victim = leader if is_leader and leader is not None else other
        if isinstance(victim, BrokerProcess):
            return victim if victim.returncode is None and victim.address else None
        return victim if victim is not None and victim.is_alive else None

    def _client(self) -> ClientProcess:
        return self._chance.choice(self._world.clients)

    def _count(self, what: str, victim: BrokerProcess | ClientProcess) -> None:
        self._counts[f"{what} of {self._world.name_of(victim)}"] += 1

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._kill_broker(victim)

    def _kill_broker(self, victim: BrokerProcess | ClientProcess) -> None:
        if self._is_spared(victim):
            return
        if victim is self._world.leader():
            name = victim.diary.name if isinstance(victim, ClientProcess) else ""
            self._world.events.leader_kills.append((time.monotonic(), name))
            self._counts["kills of the leader"] += 1
        self._count("kills", victim)
        victim.send(signal.SIGKILL)

    def _stop(self) -> None:
        pause_s = self._chance.choice((0.5, 2.0, 5.0)) * (0.5 + self._chance.random())
        victim = self._victim()
        if victim is not None:
            self._pause(victim, pause_s)

    def _pause(self, victim: BrokerProcess | ClientProcess, pause_s: float) -> None:
        if not victim.is_stopped:
            self._count("stops", victim)
            victim.send(signal.SIGSTOP)
            self._mend(pause_s, lambda: victim.send(signal.SIGCONT))

    def _terminate(self) -> None:
        victim = self._victim()
        if victim is not None and not victim.is_stopped and not self._is_spared(victim):
            self._count("terms", victim)
            victim.send(signal.SIGTERM)

    def _kill_client(self) -> None:
        victim = self._client()
        if not self._is_spared(victim):
            self._count("kills", victim)
            victim.send(signal.SIGKILL)

    def _stop_client(self) -> None:
        pause_s = 1.0 + 3.0 * self._chance.random()
        if self._world.cast.has_workers and self._chance.random() < 0.6:
            # Longer than a lease, such that it wakes up while another works on what it has held.
            pause_s += self._world.cast.settings["lease_s"]
        self._pause(self._client(), pause_s)

    def _terminate_client(self) -> None:
        """Ask somebody to end; now and then ask again soon, which means: hurry."""
        victim, hurries = self._client(), self._chance.random() < 0.4
        if victim.is_stopped or self._is_spared(victim):
            return
        self._count("terms", victim)
        victim.send(signal.SIGTERM)
        if hurries:
            self._later(1.0, lambda: victim.send(signal.SIGTERM))

    def _part(self) -> None:
        """Come between a broker and some of its clients, or all."""
        way = self._chance.choice(self._world.ways)
        fault, direction = self._chance.choice(FAULTS), self._chance.choice(DIRECTIONS)
        pause_s = self._chance.choice((1.0, 3.0, 8.0)) * (0.5 + self._chance.random())
        share = self._chance.choice((0.5, 1.0))
        if not way.is_faulty:
            self._counts[f"partitions: {fault}"] += 1
            way.strike(fault, direction, share)
            self._mend(pause_s, way.heal)

    def _cut(self) -> None:
        way = self._chance.choice(self._world.place.broker_ways)
        pause_s = self._chance.choice((1.0, 3.0, 14.0)) * (0.5 + self._chance.random())
        silent = self._chance.random() < 0.5
        if not way.is_cut:
            self._counts["storage cuts"] += 1
            way.cut(silent=silent)
            self._mend(pause_s, way.heal)

    def _slow(self) -> None:
        way = self._chance.choice(self._world.place.broker_ways)
        delay_s, pause_s = 0.8 * self._chance.random(), 5.0 * self._chance.random()
        if not way.is_cut:
            self._counts["slow storage"] += 1
            way.slow(delay_s)
            self._mend(pause_s, way.heal)

    def _ambush(self) -> None:
        """Kill a broker in the middle of archiving: the archive file is there, or it is not."""
        slot = self._chance.randrange(len(self._world.place.broker_ways))
        lands, loop = self._chance.random() < 0.5, asyncio.get_running_loop()

        def strike() -> None:
            broker = self._world.brokers[slot]
            if broker.returncode is None and not self._is_spared(broker):
                self._counts["kills while archiving"] += 1
                self._kill_broker(broker)

        def tell() -> None:
            loop.call_soon_threadsafe(strike)

        self._world.place.broker_ways[slot].lie_in_wait(tell, lands=lands)

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        """Do one more thing, if it is not over by then."""
        self._timers.append(asyncio.get_running_loop().call_later(after_s, act))

    def _mend(self, after_s: float, mend: Callable[[], None]) -> None:
        self._mends[asyncio.get_running_loop().call_later(after_s, mend)] = mend
