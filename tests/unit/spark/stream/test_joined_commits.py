"""A stream acknowledges a batch in the commit that claims the next one, and in no other."""

from __future__ import annotations

import pytest

from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import World, lose_answer, refuse, virtual
from tests.unit.spark.stream.test_micro_batches import driving, ids, push, statuses


@virtual
async def test_a_batch_and_the_next_one_share_a_commit() -> None:
    world = World()
    await push(world, 6)
    async with driving(world) as batches:
        await batches.latest(0, 2)
        for start in (1, 2):
            before = (await world.state()).version
            assert await batches.latest(start, 2) == start + 1
            assert (await world.state()).version == before + 1
    assert await statuses(world) == {"done": 4, "running": 2}


@virtual
async def test_a_commit_whose_answer_was_lost_is_repeated_to_the_effect_of_one() -> None:
    world = World()
    await push(world, 6)
    async with driving(world) as batches:
        await batches.latest(0, 2)
        world.store.plan("replace", lose_answer, refuse, lose_answer)
        assert await batches.latest(1, 2) == 2
        assert await ids(batches, 1) == (await world.ids())[2:4]
    assert await statuses(world) == {"done": 2, "running": 2, "queued": 2}


@virtual
async def test_a_driver_that_dies_after_the_commit_leaves_the_next_batch_to_be_repeated() -> None:
    world = World()
    await push(world, 6)
    async with driving(world) as batches:
        await batches.latest(0, 2)
        await batches.latest(1, 2)
        claimed = await ids(batches, 1)
    async with driving(world) as batches:  # Its checkpoint ends with the first batch.
        assert await batches.latest(1, 1) == 2
        assert await ids(batches, 1) == claimed
        assert await batches.latest(2, 9) == 3
    assert await statuses(world) == {"done": 4, "running": 2}


@pytest.mark.parametrize("held_up", ["after", "limit"])
@virtual
async def test_a_query_that_ends_by_itself_takes_jobs_that_the_last_batch_held_up(
    held_up: str,
) -> None:
    world = World()
    async with world.rival() as queue:
        if held_up == "limit":
            await queue.limit(kind="index", running=1)
        first = await queue.push("index", 1)
        after = [first] if held_up == "after" else None
        await queue.push_many([JobSpec(kind="index", payload=2, after=after)])
    assert len((await world.state()).limits) == (held_up == "limit")
    async with driving(world) as batches:
        await batches.limit_to_queued()
        for start in (0, 1):
            assert await batches.latest(start, 5) == start + 1
        assert await batches.latest(2, 5) == 2
    assert await statuses(world) == {"done": 2}


@virtual
async def test_jobs_that_others_had_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await push(world, 4)
    async with driving(world) as batches, world.rival() as queue:
        await batches.latest(0, 2)
        page = await queue.read_batch("c", 1)
        await queue.complete(page.jobs[0])
        assert await batches.latest(1, 2) == 2
    assert "batch 1 of consumer 'c' is done, but 1 of its jobs were claimed by others" in (
        caplog.text
    )
