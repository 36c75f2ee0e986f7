"""Schedules fire once for each due time, by whatever process is there, and by its clock."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep.schedule_firer import MISSED_AFTER
from bucketq.model.operations import Lead, Request
from bucketq.model.schedules import Fire
from bucketq.queue.queue import Queue
from bucketq.rpc.messages import OFFERED
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from tests.unit.commit.worlds import KEY, World, lose_answer, lose_request, queue_over, virtual

EVERY_S = 120.0
"""Twice as long as a run may be late."""


class Hosts(World):
    """A store, and processes with clocks of their own."""

    def worker(self, ahead_s: float = 0.0) -> tuple[Queue[Any], SimulatedClock]:
        """A worker that writes directly."""
        return self._make(DirectCommitter, ahead_s, fires_schedules=True)

    def process(self, ahead_s: float = 0.0) -> tuple[Queue[Any], SimulatedClock]:
        """A queue that commits for one process."""
        return self._make(GroupCommitter, ahead_s)

    def _make(self, kind: Any, ahead_s: float, **options: Any) -> tuple[Queue[Any], SimulatedClock]:
        clock = SimulatedClock(current_loop(), offset_s=ahead_s)
        register = Register(self.store, KEY, "test://queue", clock)
        return queue_over(kind, register, clock, **options), clock

    async def pushed(self) -> list[datetime]:
        """When the jobs were pushed."""
        return [job.pushed_at for job in (await self.state()).jobs]

    async def row(self) -> Any:
        return next(iter((await self.state()).schedules))

    async def set_up(self, **options: Any) -> None:
        """Add a schedule as a command does, which never fires it."""
        options = {"every_s": EVERY_S} | options
        async with self.direct() as queue:
            await queue.schedule("tick", "ping", 1, **options)


def seconds_late(pushed: Sequence[datetime], created_at: datetime) -> list[float]:
    return [
        (at - created_at - number * timedelta(seconds=EVERY_S)).total_seconds()
        for number, at in enumerate(pushed, 1)
    ]


@pytest.mark.parametrize("kind", ["worker", "process"])
@virtual
async def test_each_due_time_is_pushed_within_a_second(kind: str) -> None:
    world = Hosts()
    await world.set_up()
    queue, _ = getattr(world, kind)()
    async with queue:
        await queue.claim("none", wait_s=5 * EVERY_S + 5)
    late_s = seconds_late(await world.pushed(), (await world.row()).created_at)
    assert len(late_s) == 5
    assert all(0 <= each < 1.1 for each in late_s)


@virtual
async def test_a_queue_that_is_only_opened_fires_and_a_short_command_never_does() -> None:
    world = Hosts()
    await world.set_up()
    await asyncio.sleep(10 * EVERY_S)
    async with world.direct() as queue:
        await queue.stats()
        await asyncio.sleep(10 * EVERY_S)
        assert await world.ids() == []
    queue, _ = world.process()
    async with queue:
        await asyncio.sleep(2)
    assert len(await world.ids()) == 1


@virtual
async def test_many_processes_fire_each_due_time_once() -> None:
    world = Hosts()
    await world.set_up()
    async with AsyncExitStack() as stack:
        for ahead_s in (-20.0, 0.0, 0.0, 15.0):
            for kind in (world.worker, world.process):
                queue, _ = kind(ahead_s)
                await stack.enter_async_context(queue)
        await asyncio.sleep(5 * EVERY_S + 60)
    assert len(await world.ids()) == 5


@pytest.mark.parametrize("fault", [lose_answer, lose_request])
@virtual
async def test_a_write_whose_answer_is_lost_fires_once(fault: Any) -> None:
    world = Hosts()
    await world.set_up()
    queue, _ = world.process()
    async with queue:
        for _ in range(5):
            world.store.plan("replace", fault, fault)
            await asyncio.sleep(EVERY_S + 1)
    assert len(await world.ids()) == 5


@virtual
async def test_a_clock_that_is_set_back_fires_nothing_twice() -> None:
    world = Hosts()
    await world.set_up(missed="all")
    queue, clock = world.process()
    async with queue:
        await asyncio.sleep(3 * EVERY_S + 5)
        assert len(await world.ids()) == 3
        clock.jump(-3 * EVERY_S)
        await asyncio.sleep(3 * EVERY_S - 60)
        assert len(await world.ids()) == 3
        await asyncio.sleep(EVERY_S + 70)
    assert len(await world.ids()) == 4


@virtual
async def test_a_clock_that_is_set_forward_misses_runs() -> None:
    world = Hosts()
    await world.set_up(missed="all")
    queue, clock = world.process()
    async with queue:
        clock.jump(3 * EVERY_S)
        await asyncio.sleep(2)
    assert len(await world.ids()) == 3


@pytest.mark.parametrize("missed", ["skip", "latest", "all"])
@virtual
async def test_short_intervals_miss_nothing_while_brokers_take_over(missed: str) -> None:
    world = Hosts()
    await world.set_up(missed=missed, every_s=1)
    for _ in range(3):
        await asyncio.sleep(10)  # No process is there.
        queue, _ = world.process()
        async with queue:
            await asyncio.sleep(10.5)
    row = await world.row()
    assert len(await world.ids()) == (row.decided_at - row.created_at).total_seconds() >= 60


@pytest.mark.parametrize(
    ("missed", "away_s", "count"),
    [
        ("skip", 5 * EVERY_S + MISSED_AFTER.total_seconds() + 5, 0),
        ("skip", 5 * EVERY_S + MISSED_AFTER.total_seconds() - 5, 1),
        ("latest", 5.5 * EVERY_S, 1),
        ("all", 5.5 * EVERY_S, 5),
        ("all", 500 * EVERY_S, 100),
    ],
)
@virtual
async def test_the_policy_says_what_happens_to_missed_runs(
    missed: str, away_s: float, count: int
) -> None:
    world = Hosts()
    await world.set_up(missed=missed)
    await asyncio.sleep(away_s)
    queue, _ = world.process()
    async with queue:
        await asyncio.sleep(2)
        assert len(await world.ids()) == count
        row = await world.row()
        last = (row.decided_at - row.created_at).total_seconds()
        assert last == away_s // EVERY_S * EVERY_S
        await asyncio.sleep(EVERY_S)
    assert len(await world.ids()) == count + 1


@virtual
async def test_a_full_queue_makes_a_missed_run() -> None:
    world = Hosts()
    await world.set_up()
    queue, _ = world.process()
    async with queue:
        await queue.configure(max_jobs=1)
        await queue.push("other", 1)
        await asyncio.sleep(3.5 * EVERY_S)
        [job] = await queue.claim("other")
        await queue.complete(job)
        await asyncio.sleep(10)
        assert [job.kind for job in (await queue.jobs(statuses="queued")).jobs] == ["ping"]
    assert (await world.row()).decided_at == (await world.row()).created_at + timedelta(
        seconds=3 * EVERY_S
    )


@virtual
async def test_missed_runs_that_do_not_all_fit_come_one_by_one() -> None:
    world = Hosts()
    await world.set_up(missed="all")
    await asyncio.sleep(3.5 * EVERY_S)
    queue, _ = world.process()
    async with queue:
        await queue.configure(max_jobs=2)
        for _ in range(3):
            [job] = await queue.claim("ping", wait_s=30)
            await queue.complete(job)
        assert await queue.claim("ping", wait_s=30) == []


@virtual
async def test_one_schedule_that_cannot_fire_holds_up_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Hosts()
    async with world.direct() as queue:
        await queue.schedule("nightly", "ping", 1, cron="* * * * *")
        await queue.schedule("tick", "ping", 2, every_s=EVERY_S)
    monkeypatch.setitem(sys.modules, "cronsim", None)
    queue, _ = world.process()
    with caplog.at_level(logging.WARNING):
        async with queue:
            await asyncio.sleep(3 * EVERY_S + 5)
    assert [bytes(job.payload) for job in (await world.state()).jobs] == [b"2"] * 3
    [line] = [line for line in caplog.messages if "nightly" in line]
    assert "does not fire" in line
    assert "bucketq[cron]" in line


@virtual
async def test_a_cron_schedule_fires_at_its_times() -> None:
    world = Hosts()
    async with world.direct() as queue:
        await queue.schedule("often", "ping", 1, cron="*/5 * * * *", timezone="Europe/Berlin")
    queue, _ = world.process()
    async with queue:
        await asyncio.sleep(905)
    pushed = await world.pushed()
    assert len(pushed) == 3
    assert {(at.minute % 5, at.second // 2) for at in pushed} == {(0, 0)}


@virtual
async def test_a_worker_leaves_runs_to_the_broker_and_fires_those_that_it_does_not() -> None:
    world = Hosts()
    await world.set_up()
    clock = world.clock
    committer = DirectCommitter(world.register(), clock)
    await committer.open()
    lead = Lead(id="b", address="10.0.0.1:1", host="h", after=0)
    await committer.submit(Request(lead), 60)
    await committer.close()
    queue, _ = world.worker()
    async with queue:
        await asyncio.sleep(EVERY_S + 5)
        await queue.stats()
        assert await world.ids() == []
        await asyncio.sleep(10)
    assert len(await world.ids()) == 1


@virtual
async def test_a_schedule_that_another_process_adds_or_changes_is_seen_by_a_worker() -> None:
    world = Hosts()
    queue, _ = world.worker()
    async with queue:
        waiting = asyncio.create_task(queue.claim("ping", wait_s=300))
        await asyncio.sleep(1)
        await world.set_up(every_s=60)
        [job] = await waiting
        await queue.complete(job)
        async with world.direct() as other:
            await other.pause_schedule("tick")
        assert await queue.claim("ping", wait_s=300) == []
        async with world.direct() as other:
            await other.resume_schedule("tick")
        assert len(await queue.claim("ping", wait_s=300)) == 1


@virtual
async def test_a_wrong_clock_is_logged_by_those_that_find_its_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Hosts()
    await world.set_up()
    queue, _ = world.process(3600.0)
    async with queue:
        await asyncio.sleep(2)
    assert len(await world.ids()) == 1
    queue, _ = world.process()
    with caplog.at_level(logging.WARNING):
        async with queue:
            await asyncio.sleep(3 * EVERY_S)
    assert len(await world.ids()) == 1
    [line] = caplog.messages
    assert "ahead of the clock of this host" in line.replace("\n", " ")


@virtual
async def test_a_queue_without_schedules_is_neither_read_nor_written_for_them() -> None:
    world = Hosts()
    queue, _ = world.process()
    async with queue:
        await queue.push("mail", 1)
        before = list(world.store.calls)
        await asyncio.sleep(600)
        assert world.store.calls == before


def test_firing_is_no_request_of_clients() -> None:
    assert Fire.__name__ not in {operation.__name__ for operation in OFFERED}


@virtual
async def test_many_schedules_that_are_due_together_share_commits() -> None:
    world = Hosts()
    async with world.direct() as command:
        for number in range(250):
            await command.schedule(f"tick-{number}", "ping", number, cron="0 * * * *")
    queue, _ = world.process()
    before = (await world.state()).version
    async with queue:
        await asyncio.sleep(3600 + 5)
        state = await world.state()
    assert len(list(state.jobs)) == 250
    assert state.version - before < 20
