"""Reads take turns: a batch of many does not hold up commits, other clients, or the process."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from bucketq.commit.commit_hooks import CommitHooks
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.pending_requests import PendingRequest
from bucketq.commit.read_turns import ROUND_S, read_in_turns
from bucketq.model.operations import List, Request
from bucketq.model.state import State
from bucketq.model.transitions import Applied
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import World, start, virtual

READ_S = ROUND_S / 5


class Read(PendingRequest):
    """A read of one of several clients."""

    def __init__(self, owner: str) -> None:
        super().__init__(Request(List()), 0, 0.0)
        self._owner = owner

    @property
    def owner(self) -> object:
        return self._owner


class Stopwatch:
    """Time that passes only while something is read."""

    def __init__(self) -> None:
        self.read: list[PendingRequest] = []

    def look_up(self, waiting: PendingRequest) -> None:
        self.read.append(waiting)

    def now_s(self) -> float:
        return len(self.read) * READ_S


def test_a_round_of_reads_is_short_and_takes_clients_in_turns() -> None:
    many, few = [Read("many") for _ in range(1000)], [Read("few") for _ in range(2)]
    watch = Stopwatch()
    left = read_in_turns([*many, *few], watch.look_up, watch.now_s)
    assert watch.read == [many[0], few[0], many[1], few[1], many[2]]
    assert left == many[3:]


def test_every_client_has_its_turn_although_a_round_is_too_short_for_all() -> None:
    left: list[PendingRequest] = [Read(f"client {number % 20}") for number in range(40)]
    watch = Stopwatch()
    for _ in range(4):
        left = read_in_turns(left, watch.look_up, watch.now_s)
    assert len({read.owner for read in watch.read}) == 20


def test_a_read_that_takes_longer_than_a_round_is_answered() -> None:
    times = iter([0.0, 9.0])
    reads, done = [Read("a"), Read("b")], list[PendingRequest]()
    assert read_in_turns(reads, done.append, lambda: next(times)) == [reads[1]]
    assert done == [reads[0]]
    assert read_in_turns([], done.append, lambda: 0.0) == []


class SlowReader(CommitHooks):
    """Every read takes its time, in which nothing else can happen."""

    count = 0

    def read(self, state: State, request: Request, now: datetime) -> Applied:
        self.count += 1
        loop: Any = asyncio.get_running_loop()
        loop._now_s += READ_S
        return super().read(state, request, now)


def slow_queue(world: World) -> tuple[SlowReader, Queue[Any]]:
    slow = SlowReader(world.clock, create=True)
    return slow, Queue(GroupCommitter(world.register(), world.clock, hooks=slow), world.clock)


@pytest.mark.parametrize("spill_bytes", [300, 300_000])
@virtual
async def test_many_reads_let_other_work_of_the_process_have_its_turn(spill_bytes: int) -> None:
    """Also those that wait for rows of segments first."""
    world = World()
    slow, queue = slow_queue(world)
    async with queue:
        await queue.configure(spill_bytes=spill_bytes)
        await queue.push("mail", 0)
        listings = [start(queue.jobs()) for _ in range(500)]
        most = seen = 0
        pushed = start(queue.push("mail", 1))
        done_after: int | None = None
        while not all(listing.done() for listing in listings):
            await asyncio.sleep(0)
            most, seen = max(most, slow.count - seen), slow.count
            if pushed.done() and done_after is None:
                done_after = slow.count
        assert slow.count >= 500
        assert most <= 6, "reads between two turns of another task"
        assert done_after is not None
        assert done_after <= 20, "reads before a commit that came with them"
        for listing in listings:
            assert len((await listing).jobs) in {1, 2}


@virtual
async def test_reads_that_were_postponed_see_only_what_is_committed() -> None:
    world = World()
    _, queue = slow_queue(world)
    async with queue:
        for number in range(20):
            listings = [start(queue.jobs(limit=1000)) for _ in range(10)]
            await queue.push("mail", number)
            before = len(await world.ids())
            assert before >= number + 1
            for listing in listings:
                assert len((await listing).jobs) <= len(await world.ids())
