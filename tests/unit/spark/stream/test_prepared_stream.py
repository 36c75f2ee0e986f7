"""The next micro-batch is reserved and read while Spark works on one, and released in the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bucketq.model.records import JobRecord
from bucketq.spark.stream import micro_batches
from bucketq.spark.stream.micro_batches import MicroBatches
from tests.unit.commit.worlds import World, refuse, virtual
from tests.unit.spark.stream.test_micro_batches import OPTIONS, driving, ids, push, statuses


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batches, "_PREPARED_JOBS", 2)


async def prepared(batches: MicroBatches) -> int:
    """Prepare the next batch, if that is due; return how many jobs were read."""
    await batches.prepare_next()
    if batches._preparing is not None:
        await asyncio.wait([batches._preparing])
    return len(batches._prepared_jobs)


async def kill_prepared(world: World) -> None:
    """A driver claims three jobs, prepares three, and is gone without giving anything back."""
    async with world.direct(timeout_s=5.0) as queue:
        killed = await MicroBatches(queue, OPTIONS).__aenter__()
        await killed.latest(0, 3)
        await prepared(killed)
        assert killed._renewing is not None
        killed._renewing.cancel()


@virtual
async def test_the_next_batch_is_reserved_and_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, batches_read = MicroBatches._read, list[int]()

    async def note(batches: MicroBatches, batch: int) -> tuple[list[JobRecord], list[str]]:
        batches_read.append(batch)
        return await read(batches, batch)

    monkeypatch.setattr(MicroBatches, "_read", note)
    world = World()
    await push(world, 7)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        assert await prepared(batches) == 3
        assert await statuses(world) == {"running": 6, "queued": 1}
        assert await batches.latest(1, 3) == 2
        assert await ids(batches, 1) == (await world.ids())[3:6]
        assert await statuses(world) == {"done": 3, "running": 3, "queued": 1}
        assert await prepared(batches) == 0, "one job is no full batch"
        assert await batches.latest(2, 3) == 3
    assert batches_read == [1, 2, 3]
    assert await statuses(world) == {"done": 6, "running": 1}


@virtual
async def test_it_is_released_when_the_query_ends() -> None:
    world = World()
    await push(world, 7)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        await prepared(batches)
    assert await statuses(world) == {"running": 3, "queued": 4}
    assert {(job.attempt, job.lost_leases) for job in (await world.state()).jobs} == {
        (0, 0),
        (1, 0),
    }


@virtual
async def test_the_next_driver_has_the_identical_batch_after_a_kill() -> None:
    world = World()
    await push(world, 9)
    await kill_prepared(world)
    async with driving(world) as batches:
        assert await ids(batches, 0) == (await world.ids())[:3]
        assert await batches.latest(1, 3) == 2
        assert await ids(batches, 1) == (await world.ids())[3:6]
        assert await prepared(batches) == 3
    assert {job.attempt for job in (await world.state()).jobs if job.status == "running"} == {1}


@virtual
async def test_a_query_that_ends_by_itself_takes_what_a_killed_one_has_reserved() -> None:
    world = World()
    await push(world, 6)
    await kill_prepared(world)
    async with driving(world) as batches:
        await batches.limit_to_queued()
        assert await batches.latest(1, 3) == 2
        assert await batches.latest(2, 3) == 2
    assert await statuses(world) == {"done": 6}


@virtual
async def test_it_takes_only_what_was_queued_when_it_began() -> None:
    world = World()
    await push(world, 5)
    async with driving(world) as batches:
        await batches.limit_to_queued()
        await push(world, 5)
        await batches.latest(0, 3)
        assert await prepared(batches) == 0, "only two are left of those"


@virtual
async def test_leases_of_both_are_renewed() -> None:
    world = World()
    await push(world, 6)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        await prepared(batches)
        await asyncio.sleep(300)
        async with world.rival() as rival:
            assert not await rival.claim(limit=5), "their leases would have expired"
        assert await batches.latest(1, 3) == 2
        assert await ids(batches, 1) == (await world.ids())[3:6]


@virtual
async def test_jobs_that_were_cancelled_meanwhile_are_not_in_the_batch() -> None:
    world = World()
    await push(world, 6)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        await prepared(batches)
        async with world.rival() as rival:
            await rival.cancel((await world.ids())[4])
        assert await batches.latest(1, 3) == 2
        found = await world.ids()
        assert await ids(batches, 1) == [found[3], found[5]]


@virtual
async def test_if_it_cannot_be_prepared_the_claim_finds_the_jobs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await push(world, 6)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        world.store.plan("replace", refuse)
        assert await prepared(batches) == 0
        assert "is not prepared" in caplog.text
        assert await batches.latest(1, 3) == 2
        assert await ids(batches, 1) == (await world.ids())[3:6]


@virtual
async def test_if_spark_is_faster_it_is_claimed_and_the_one_after_it_is_prepared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await push(world, 9)
    async with driving(world) as batches:
        await batches.latest(0, 3)
        await batches.prepare_next()
        assert await batches.latest(1, 3) == 2
        assert await prepared(batches) == 3
        assert await batches.latest(2, 3) == 3
        assert await ids(batches, 2) == (await world.ids())[6:]
    assert not caplog.text


@virtual
async def test_small_batches_and_batches_of_large_payloads_are_not_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    await push(world, 9)
    async with driving(world) as batches:
        await batches.latest(0, 1)
        assert await prepared(batches) == 0
        monkeypatch.setattr(micro_batches, "_PREPARED_BYTES", 1)
        await batches.latest(1, 3)
        assert await prepared(batches) == 0


@virtual
async def test_other_kinds_of_the_next_query_are_respected() -> None:
    world = World()
    await push(world, 6)
    await kill_prepared(world)
    await push(world, 1, "mail")
    async with driving(world, replace(OPTIONS, kinds=("mail",))) as batches:
        assert await ids(batches, 0) == (await world.ids())[:3]
        assert await batches.latest(1, 3) == 2
        assert await ids(batches, 1) == (await world.ids())[6:]
    assert await statuses(world) == {"done": 3, "queued": 3, "running": 1}
