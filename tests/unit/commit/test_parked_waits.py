"""Waits for jobs: answered by the commit that ends the job, and free until then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.commit import polled_waits
from bucketq.errors import ClosedError, JobNotFoundError
from bucketq.model import transitions
from bucketq.model.outbox import Archived, ArchivedPart
from bucketq.model.results import Wait
from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import Gate, World, settle, start, virtual


def counted_lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that waits are looked up for, from now on."""
    looked_up: list[str] = []
    look_up = transitions._HANDLERS[Wait]

    def count(state: Any, operation: Wait, now: Any) -> Any:
        looked_up.append(operation.job)
        return look_up(state, operation, now)

    handlers: dict[Any, Any] = transitions._HANDLERS
    monkeypatch.setitem(handlers, Wait, count)
    return looked_up


@virtual
async def test_a_wait_is_answered_by_the_write_that_ends_its_job_and_costs_nothing_else() -> None:
    world = World()
    async with world.embedded() as queue:
        job_id = await queue.push("mail", 1)
        (job,) = await queue.claim()
        world.store.calls.clear()
        waiting = start(queue.wait(job_id))
        await settle()
        assert world.store.calls == []
        await queue.complete(job, "sent")
        await settle()
        assert waiting.result() == "sent"
        assert world.store.count("replace") == len(world.store.calls) == 1


@virtual
async def test_a_wait_is_not_answered_before_the_write_that_ends_its_job_has_landed() -> None:
    world = World()
    async with world.embedded() as queue:
        job_id = await queue.push("mail", 1)
        (job,) = await queue.claim()
        waiting = start(queue.wait(job_id, timeout_s=60))
        await settle()
        gate = Gate()
        world.store.plan("replace", gate)
        completing = start(queue.complete(job, "sent"))
        await gate.reached.wait()
        await asyncio.sleep(0.4)
        assert not waiting.done()
        gate.open()
        await completing
        assert await waiting == "sent"


@pytest.mark.parametrize("mode", ["embedded", "direct"])
def test_a_job_that_another_process_ends_is_noticed_within_a_second(mode: str) -> None:
    @virtual
    async def check() -> None:
        world = World()
        async with getattr(world, mode)() as queue, world.rival() as rival:
            job_id = await queue.push("mail", 1)
            waiting = start(queue.wait(job_id, timeout_s=600))
            await asyncio.sleep(100)
            (job,) = await rival.claim()
            await rival.complete(job, "sent")
            async with asyncio.timeout(1.1):
                assert await waiting == "sent"

    check()


@pytest.mark.parametrize("mode", ["embedded", "direct"])
def test_thousands_of_waits_cost_one_look_a_second_and_one_lookup_each(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @virtual
    async def check() -> None:
        world = World()
        async with getattr(world, mode)() as queue:
            await queue.configure(archive_after_s=3600, spill_bytes=16 << 20)
            ids = await queue.push_many(JobSpec(kind="a", payload=n) for n in range(3000))
            waits = [start(queue.wait(job_id, timeout_s=50)) for job_id in ids]
            await asyncio.sleep(2)
            looked_up = counted_lookups(monkeypatch)
            world.store.calls.clear()
            await asyncio.sleep(10)
            assert len(world.store.calls) <= 11
            assert looked_up == []
            jobs = await queue.claim(limit=100)
            await queue.complete_many((job, job.payload) for job in jobs)
            await asyncio.sleep(0.5)
            done = [wait.result() for wait in waits if wait.done()]
            assert done == list(range(100))
            assert len(looked_up) == 100
            await asyncio.sleep(60)
            assert sum(isinstance(wait.exception(), TimeoutError) for wait in waits) == 2900
            assert len(looked_up) == 100

    check()


@virtual
async def test_a_wait_longer_than_a_request_is_sent_again() -> None:
    world = World()
    async with world.embedded() as queue:
        job_id = await queue.push("mail", 1)
        waiting = start(queue.wait(job_id, timeout_s=300))
        await asyncio.sleep(250)
        (job,) = await queue.claim()
        await queue.complete(job, "sent")
        assert await waiting == "sent"


@pytest.mark.parametrize("mode", ["embedded", "direct"])
def test_closing_ends_waits(mode: str) -> None:
    @virtual
    async def check() -> None:
        world = World()
        async with getattr(world, mode)() as queue:
            waiting = start(queue.wait(await queue.push("mail", 1)))
            await settle()
        with pytest.raises(ClosedError):
            await waiting

    check()


@virtual
async def test_a_wait_survives_a_write_that_is_lost_to_another_writer() -> None:
    world = World()
    async with world.embedded() as queue:
        job_id = await queue.push("mail", 1)
        (job,) = await queue.claim()
        waiting = start(queue.wait(job_id))
        await settle()
        gate = Gate()
        world.store.plan("replace", gate)
        completing = start(queue.complete(job, "sent"))
        await gate.reached.wait()
        await world.rival_pushes()
        gate.open()
        await completing
        assert await waiting == "sent"


@virtual
async def test_a_job_that_is_gone_when_the_object_is_read_again_is_reported_as_gone() -> None:
    world = World()
    async with world.embedded() as queue, world.rival() as rival:
        await queue.configure(archive_after_s=0)
        job_id = await queue.push("mail", 1)
        waiting = start(queue.wait(job_id))
        await settle()
        record = (await queue.get(job_id)).record
        await rival.cancel(job_id)
        await rival._sender.send(Archived(parts=(ArchivedPart(((job_id, record.seq),)),)))
        with pytest.raises(JobNotFoundError):
            await waiting


@virtual
async def test_a_direct_wait_looks_less_and_less_often() -> None:
    world = World()
    async with world.direct() as queue:
        job_id = await queue.push("mail", 1)
        world.store.calls.clear()
        waiting = start(queue.wait(job_id, timeout_s=40))
        await asyncio.sleep(10)
        assert 10 <= len(world.store.calls) <= 10 / polled_waits._LAST_POLL_S + 6
        waiting.cancel()
        await asyncio.sleep(2)
        world.store.calls.clear()
        await asyncio.sleep(10)
        assert world.store.calls == [], "without waits it looks no more"
