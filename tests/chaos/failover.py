"""How long until another broker answers: from a fault of the leader to the next acknowledgement.

Everything has its default settings. What counts is the first operation that another client began
after the fault, so nothing is counted that the broker had answered before.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import bucketq
from tests.chaos.fleet import BrokerProcess, ClientProcess, Fleet, fleet, wait_until
from tests.chaos.verdict import Diaries
from tests.chaos.ways import BrokerWay

LeaderFault = Literal["kill", "freeze", "cut off"]
"""SIGKILL; SIGSTOP; or what is sent to it and by it is swallowed, while it reaches its storage."""
LEADER_FAULTS: tuple[LeaderFault, ...] = ("kill", "freeze", "cut off")
_SERVES = 2
_CLIENTS = 3
_PATIENCE_S = 60.0


class Failovers:
    """A queue whose leaders fail one after the other."""

    def __init__(self, processes: Fleet, url: str, ways: Sequence[BrokerWay] = ()) -> None:
        """Brokers that can be cut off need ``ways``, one each."""
        self._processes = processes
        self._url = url
        self._free_ways = list(ways)
        self._ways: dict[int, BrokerWay] = {}
        """The way to each broker, by its process id."""

    def serve(self) -> None:
        words = [self._url]
        way = self._free_ways.pop() if self._free_ways else None
        if way is not None:
            words += ["--listen", way.listen, "--advertise", way.address]
        broker = self._processes.serve(*words)
        if way is not None:
            self._ways[broker.pid] = way
        broker.wait_until_serving(_PATIENCE_S)

    def start_client(self, number: int, **wish: Any) -> None:
        self._processes.client(number, self._url, "push_one", number, **wish)

    def replace(self, victim: BrokerProcess | ClientProcess) -> None:
        """End a broker that has failed, and start another."""
        assert isinstance(victim, BrokerProcess)
        victim.kill()
        way = self._ways.pop(victim.pid, None)
        if way is not None:
            way.heal()
            self._free_ways.append(way)
        self.serve()

    def leader(self) -> BrokerProcess | ClientProcess | None:
        """The process that was the last to say that it leads, if it is still there."""
        found = self._processes.leaders()
        last = found[max(found)] if found else None
        if isinstance(last, BrokerProcess):
            return last if last.returncode is None else None
        return last if last is not None and last.is_alive else None

    def measure(
        self,
        fault: LeaderFault,
        count: int,
        seed: int,
        restart: Callable[[BrokerProcess | ClientProcess], None],
    ) -> list[float]:
        """Let leaders fail, over and over; returns how long the others were without a broker."""
        chance, times_s = random.Random(seed), []
        for _ in range(count):
            wait_until(self.leader, _PATIENCE_S, "until a broker led")
            self._until_acknowledged(time.monotonic(), "")
            # At any moment of what the others do to look after it.
            time.sleep(chance.random())
            victim = self.leader()
            if victim is None:
                continue
            struck_at = self._strike(victim, fault)
            name = victim.diary.name if isinstance(victim, ClientProcess) else ""
            times_s.append(self._until_acknowledged(struck_at, name) - struck_at)
            restart(victim)
        return times_s

    def _strike(self, victim: BrokerProcess | ClientProcess, fault: LeaderFault) -> float:
        """Let a leader fail; returns since when it has."""
        if fault == "cut off":
            way = self._ways[victim.pid]
            way.strike("swallow", "both ways", 1.0)
            wait_until(lambda: way.is_faulty, _PATIENCE_S, "until the leader was cut off")
        else:
            victim.send(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        return time.monotonic()

    def _until_acknowledged(self, moment: float, but: str) -> float:
        def first() -> float | None:
            return Diaries.of_fleet(self._processes).first_after(moment, but)

        wait_until(first, _PATIENCE_S, "until an operation was acknowledged")
        return first() or 0.0


def with_a_standby(
    folder: Path, count: int, seed: int, *, fault: LeaderFault = "kill", url: str = ""
) -> list[float]:
    """Two ``serve``, and clients that can do nothing but wait for a broker.

    Without ``url`` the queue is a file in ``folder``.
    """
    with ExitStack() as stack:
        ways = [
            stack.enter_context(BrokerWay(f"{seed}/{slot}"))
            for slot in range(_SERVES if fault == "cut off" else 0)
        ]
        url = url or (folder / "queue.json").as_uri()
        failovers = Failovers(stack.enter_context(_new(folder, url)), url, ways)
        for _ in range(_SERVES):
            failovers.serve()
        for number in range(_CLIENTS):
            failovers.start_client(number, mode="remote")
        return failovers.measure(fault, count, seed, failovers.replace)


def without_a_standby(folder: Path, count: int, seed: int) -> list[float]:
    """Clients as ``connect(url)`` makes them: one leads inside its own process, then another."""
    url = (folder / "queue.json").as_uri()
    with _new(folder, url) as processes:
        failovers = Failovers(processes, url)
        failovers.serve()
        for number in range(_CLIENTS):
            failovers.start_client(number, launch="inside")

        def restart(victim: BrokerProcess | ClientProcess) -> None:
            if isinstance(victim, ClientProcess):
                failovers.start_client(victim.number, launch="inside")

        return failovers.measure("kill", count, seed, restart)


@contextmanager
def _new(folder: Path, url: str) -> Iterator[Fleet]:
    with bucketq.connect_sync(url, mode="direct"):
        pass  # It is there now.
    with fleet(folder) as processes:
        yield processes
    assert not processes.complaints(), processes.complaints()
