"""How long a failover takes, on virtual time: from a fault of the leader to the next answer.

One seed is one failover. Everything has its default settings; the storage takes 20 to 60 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

from bucketq.client.launcher import HostLock, InsideLauncher
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_process import Process
from bucketq.testing.virtual_loop import VirtualLoop, current_loop, run
from tests.unit.client.clients import Realm

Fault = Literal["kill", "freeze", "cut off"]
"""kill -9; SIGSTOP; or its network swallows everything while it still reaches the storage."""
Successor = Literal["standby", "client"]
"""Who takes over: another ``serve``, or a client that starts a broker in its own process."""

FAULTS: tuple[Fault, ...] = ("kill", "freeze", "cut off")
SUCCESSORS: tuple[Successor, ...] = ("standby", "client")
_CLIENTS = 3
_PAUSE_S = 0.02
_LIMIT_S = 60.0


class _Lock(HostLock):
    """The lock of the one host on which all clients run."""

    def __init__(self) -> None:
        super().__init__("simulated")
        self._holder: int | None = None

    def take(self) -> bool:
        me = id(asyncio.current_task())
        self._holder = self._holder or me
        return self._holder == me

    def release(self) -> None:
        """Nobody else is to have it."""


def failover_s(seed: int, fault: Fault, successor: Successor = "standby") -> float:
    """Let one leader fail; returns how long clients were without an answer."""

    async def main(_: VirtualLoop) -> float:
        return await _Failover(seed, successor).play(fault)

    return run(main, seed=seed)


def takeovers_in_stalls(seed: int, stall_s: float, stalls: int = 20) -> int:
    """Let a leader stand still for moments, as on a busy host; returns how often it is replaced."""

    async def main(_: VirtualLoop) -> int:
        return await _Failover(seed, "standby").stall(stall_s, stalls)

    return run(main, seed=seed)


class _Failover:
    """A leader, whoever follows it, and clients that push all the time."""

    def __init__(self, seed: int, successor: Successor) -> None:
        self._realm = Realm()
        self._chance = current_loop().stream(f"failover {seed}")
        self._successor = successor
        self._lock = _Lock()
        self._standby: Process | None = None
        self._acknowledged: list[tuple[float, float]] = []
        """When pushes began, and when they were acknowledged."""

    async def play(self, fault: Fault) -> float:
        leader = await self._begin()
        fault_s = current_loop().time()
        self._strike(leader, fault)
        async with asyncio.timeout(_LIMIT_S):
            while True:
                await asyncio.sleep(_PAUSE_S)
                ends = [end for began, end in self._acknowledged if began > fault_s]
                if ends:
                    return min(ends) - fault_s

    async def stall(self, stall_s: float, stalls: int) -> int:
        processes = {"host1": await self._begin(), "host2": self._standby}
        for _ in range(stalls):
            leader = processes[(await self._realm.record()).host]
            assert leader is not None
            leader.freeze(for_s=stall_s)
            await asyncio.sleep(stall_s + self._chance.uniform(5, 8))
        return (await self._realm.record()).epoch - 1

    async def _begin(self) -> Process:
        realm, chance = self._realm, self._chance

        async def take_a_moment(effect: Callable[[], Awaitable[Any]]) -> Any:
            await asyncio.sleep(chance.uniform(0.01, 0.03))
            done = await effect()
            await asyncio.sleep(chance.uniform(0.01, 0.03))
            return done

        leader = realm.spawn("host1")
        await realm.until_led_by("host1")
        realm.store.break_down(take_a_moment)
        if self._successor == "standby":
            self._standby = realm.spawn("host2")
        for number in range(_CLIENTS):
            current_loop().spawn(f"client{number}", partial(self._push, number))
        # At any moment of what the others do to look after it.
        await asyncio.sleep(chance.uniform(5, 8))
        assert len(self._acknowledged) > _CLIENTS
        return leader

    def _strike(self, leader: Process, fault: Fault) -> None:
        if fault == "kill":
            leader.kill()
        elif fault == "freeze":
            leader.freeze()
        else:
            self._realm.network.partition("host1")

    async def _push(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        async with self._client(f"client{number}") as queue:
            while True:
                began_s = loop.time()
                await queue.push("mail", number)
                self._acknowledged.append((began_s, loop.time()))
                await asyncio.sleep(_PAUSE_S)

    def _client(self, host: str) -> Queue[Any]:
        if self._successor == "standby":
            return self._realm.client(host)
        server = self._realm.server(host)
        launcher = InsideLauncher(server, self._realm.brokers[host], self._lock, f"{host}:0")
        return self._realm.client(host, launcher=launcher)
