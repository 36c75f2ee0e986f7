"""A stream counts the jobs that wait behind it, and goes on without the number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketq.errors import AccessDeniedError
from bucketq.model.queue_stats import Stats
from tests.unit.commit.worlds import World, virtual
from tests.unit.spark.stream.test_micro_batches import OPTIONS, driving, push


@virtual
async def test_progress_reports_how_many_jobs_are_waiting() -> None:
    world = World()
    await push(world, 5)
    await push(world, 2, kind="other")
    async with driving(world, replace(OPTIONS, kinds=("index",))) as batches:
        await batches.latest(0, 2)
        assert await batches.report() == (1, 2, 2, 3)
        await push(world, 4)
        await batches.latest(1, 1)
        assert await batches.report() == (2, 1, 1, 6), "each batch is counted anew"


@virtual
async def test_a_batch_goes_on_if_the_jobs_behind_it_cannot_be_counted() -> None:
    async def refuse() -> Stats:
        raise AccessDeniedError("no right to read")

    world = World()
    await push(world, 3)
    async with driving(world) as batches:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batches._queue, "stats", refuse)
            assert await batches.latest(0, 2) == 1
            await batches.prepare_next()
            assert len(await batches.jobs(0, 1)) == 2
            assert await batches.report() == (1, 2, 2, 0)
