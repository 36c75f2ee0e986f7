"""How long until another broker answers: from a kill of whoever leads to the next acknowledgement.

Everything has its default settings, on a local file. What counts is the first operation that
another client began after the kill, so nothing is counted that the dead broker had answered.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bucketq
from bucketq.codec import read_heading
from tests.chaos.fleet import BrokerProcess, ClientProcess, Fleet, fleet, wait_until
from tests.chaos.verdict import Diaries

_CLIENTS = 3
_PATIENCE_S = 60.0


class Failovers:
    """A queue in a file, whose brokers are killed one after the other."""

    def __init__(self, processes: Fleet) -> None:
        self._processes = processes
        self._path = processes.folder / "queue.json"
        self.url = self._path.as_uri()

    def serve(self) -> None:
        self._processes.serve(self.url).wait_until_serving()

    def start_client(self, number: int, **wish: Any) -> None:
        self._processes.client(number, self.url, "push_one", number, **wish)

    def leader(self) -> BrokerProcess | ClientProcess | None:
        """Who leads now, by the object and by his own word."""
        record = read_heading(self._path.read_bytes(), self.url).broker
        if record is None or not record.address:
            return None
        found = self._processes.leaders().get(record.epoch)
        is_there = isinstance(found, BrokerProcess) or (found is not None and found.is_alive)
        return found if is_there else None

    def measure(
        self, kills: int, seed: int, restart: Callable[[BrokerProcess | ClientProcess], None]
    ) -> list[float]:
        """Kill whoever leads, over and over; returns how long the others were without a broker."""
        chance, times_s = random.Random(seed), []
        for _ in range(kills):
            wait_until(self.leader, _PATIENCE_S, "until somebody led")
            self._until_acknowledged(time.monotonic(), "")
            # At any moment of what the others do to look after it.
            time.sleep(chance.random())
            victim = self.leader()
            if victim is None:
                continue
            killed_at = time.monotonic()
            victim.send(signal.SIGKILL)
            name = victim.diary.name if isinstance(victim, ClientProcess) else ""
            times_s.append(self._until_acknowledged(killed_at, name) - killed_at)
            restart(victim)
        return times_s

    def _until_acknowledged(self, moment: float, but: str) -> float:
        def first() -> float | None:
            return Diaries.of_fleet(self._processes).first_after(moment, but)

        wait_until(first, _PATIENCE_S, "until an operation was acknowledged")
        return first() or 0.0


def with_a_standby(folder: Path, kills: int, seed: int) -> list[float]:
    """Two ``serve``, and clients that can do nothing but wait for a broker."""
    with _new(folder) as processes:
        failovers = Failovers(processes)
        for _ in range(2):
            failovers.serve()
        for number in range(_CLIENTS):
            failovers.start_client(number, mode="remote")
        return failovers.measure(kills, seed, lambda _: failovers.serve())


def without_a_standby(folder: Path, kills: int, seed: int) -> list[float]:
    """Clients as ``connect(url)`` makes them: one leads inside its own process, then another."""
    with _new(folder) as processes:
        failovers = Failovers(processes)
        failovers.serve()
        for number in range(_CLIENTS):
            failovers.start_client(number, launch="inside")

        def restart(victim: BrokerProcess | ClientProcess) -> None:
            if isinstance(victim, ClientProcess):
                failovers.start_client(victim.number, launch="inside")

        return failovers.measure(kills, seed, restart)


@contextmanager
def _new(folder: Path) -> Iterator[Fleet]:
    with bucketq.connect_sync((folder / "queue.json").as_uri(), mode="direct"):
        pass  # It is there now.
    with fleet(folder) as processes:
        yield processes
    assert not processes.complaints(), processes.complaints()
