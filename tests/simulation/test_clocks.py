"""Hosts whose clocks are hours apart, short commands, and storage that loses answers."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.model.effects import timekeeping
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.simulated_store import SimulatedStore
from bucketq.testing.store_faults import Faults
from bucketq.testing.virtual_loop import VirtualLoop, run

KEY = "queue.json"
HOUR_S = 3600.0
MAX_KEYS = 150
FAULTS = Faults(lost_request=0.02, lost_answer=0.05, server_error=0.03, self_conflict=0.03)
Patch = pytest.MonkeyPatch


class Hosts:
    """Several hosts with clocks that are right within a minute or two, and one that is not."""

    def __init__(self, loop: VirtualLoop, wrong_s: float) -> None:
        self.rng: random.Random = loop.stream("hosts")
        self.store = SimulatedStore(loop, FAULTS)
        self.offsets = [self.rng.uniform(-100, 100) for _ in range(3)]
        self.wrong_s = wrong_s
        self.loop = loop
        self.pushed: dict[str, tuple[str, float]] = {}
        """The job that was pushed under a key by a host that is right, and when."""

    def queue(self, offset_s: float) -> Queue[Any]:
        clock = SimulatedClock(self.loop, offset_s=offset_s)
        register = Register(self.store.connect(), KEY, "simulated queue", clock)
        return Queue(DirectCommitter(register, clock, timeout_s=600), clock, timeout_s=600)

    async def command(self, number: int) -> None:
        """Do what one short command does: push with a key, or push one again."""
        if self.rng.random() < 0.3:
            async with self.queue(self.wrong_s) as queue:
                await queue.push("mail", number, key=f"wrong-{number}")
            return
        async with self.queue(self.rng.choice(self.offsets)) as queue:
            recent = [key for key, (_, at_s) in self.pushed.items() if self._is_recent(at_s)]
            if recent and self.rng.random() < 0.5:
                key = self.rng.choice(recent)
                assert await queue.push("mail", key, key=key) == self.pushed[key][0], key
            else:
                key, began_s = f"key-{number}", self.loop.time()
                self.pushed[key] = (await queue.push("mail", key, key=key), began_s)

    def _is_recent(self, at_s: float) -> bool:
        """Whether a key must still be known, to any clock within the margin."""
        return self.loop.time() - at_s < HOUR_S - 600


def live(wrong_s: float, seed: int) -> int:
    """Let hosts work for eight hours; return how many keys the object holds in the end."""

    async def main(loop: VirtualLoop) -> int:
        hosts = Hosts(loop, wrong_s)
        async with hosts.queue(0) as queue:
            await queue.configure(max_keys=MAX_KEYS)
        for number in range(240):
            await asyncio.sleep(hosts.rng.uniform(0, 240))
            await hosts.command(number)
        stored = hosts.store.peek(KEY)
        assert stored is not None
        return len(decode(stored.body, "simulated queue").state.keys)

    return run(main, seed=seed)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2))])
@pytest.mark.parametrize("wrong_s", [2 * HOUR_S, -2 * HOUR_S, 1000 * HOUR_S, -1000 * HOUR_S])
def test_one_wrong_clock_neither_doubles_a_keyed_push_nor_fills_the_queue(
    wrong_s: float, seed: int
) -> None:
    assert live(wrong_s, seed) <= MAX_KEYS


def test_ages_judged_by_one_clock_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(timekeeping, "agreed", lambda _state, now: now)
    with pytest.raises(AssertionError, match="key-"):
        live(2 * HOUR_S, 0)


def test_a_clock_that_is_believed_at_its_second_commit_is_noticed(monkeypatch: Patch) -> None:

    monkeypatch.setattr(timekeeping, "_STANDING", timedelta(0))
    with pytest.raises(AssertionError, match="key-"):
        live(2 * HOUR_S, 0)
