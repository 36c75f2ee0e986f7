"""Claims of a deep queue that need the same rows: one reads them, and the others wait behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.codec import segment_index
from bucketq.commit import working_state
from bucketq.commit.objects import segment_parts
from bucketq.errors import StoreRefusedError
from bucketq.model.operations import Claim
from bucketq.model.transitions import apply
from bucketq.queue.push_options import JobSpec
from tests.unit.commit.worlds import World, refuse, settle, slowly, start, virtual

JOBS = 300
CALLERS = 60
EACH = 5


async def deep(patch: pytest.MonkeyPatch) -> World:
    """A queue whose jobs are all in segments, in blocks of a few, of which few fit in memory."""
    world = World()
    patch.setattr(segment_index, "BLOCK_BYTES", 2000)
    patch.setattr(segment_parts, "ROW_BYTES", 8000)
    async with world.embedded() as queue:
        await queue.configure(spill_bytes=300)
        await queue.push_many(JobSpec(kind="k", payload=number) for number in range(JOBS))
        await asyncio.sleep(5)
    return world


@virtual
async def test_many_claims_at_once_are_served_in_order_and_hardly_tried_twice() -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = await deep(patch)
        tried = 0

        def counted(state: Any, request: Any, *others: Any) -> Any:
            nonlocal tried
            tried += type(request.operation) is Claim
            return apply(state, request, *others)

        patch.setattr(working_state, "apply", counted)
        async with world.embedded(timeout_s=30.0) as queue:
            world.store.calls.clear()
            claims = [start(queue.claim(limit=EACH)) for _ in range(CALLERS)]
            found = await asyncio.gather(*claims)
    assert [[job.payload for job in jobs] for jobs in found] == [
        list(range(first, first + EACH)) for first in range(0, JOBS, EACH)
    ]
    reads = world.store.count("get_range")
    assert reads > 10, "the rows were in memory, so this shows nothing"
    assert tried <= CALLERS + reads


@virtual
async def test_the_others_go_on_if_the_first_is_cancelled() -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = await deep(patch)
        async with world.embedded(timeout_s=30.0) as queue:
            world.store.stand("get_range", slowly(0.5))
            claims = [start(queue.claim(limit=EACH)) for _ in range(4)]
            await settle()
            claims[0].cancel()
            claims[2].cancel()
            found = await asyncio.gather(claims[1], claims[3])
            assert [job.payload for jobs in found for job in jobs] == list(range(2 * EACH))
            rest = [job.payload for job in await queue.claim(limit=JOBS)]
            assert rest == list(range(2 * EACH, JOBS))


@virtual
async def test_the_others_go_on_if_rows_of_the_first_cannot_be_read() -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = await deep(patch)
        async with world.embedded(timeout_s=30.0) as queue:
            world.store.plan("get_range", refuse)
            claims = [start(queue.claim(limit=EACH)) for _ in range(3)]
            found = await asyncio.gather(*claims, return_exceptions=True)
            assert isinstance(found[0], StoreRefusedError)
            others = [job.payload for jobs in found[1:] for job in jobs]  # type: ignore[union-attr]
            assert others == list(range(2 * EACH))


@virtual
async def test_the_others_go_on_if_another_process_has_written() -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = await deep(patch)
        async with world.embedded(timeout_s=30.0) as queue, world.direct() as other:
            world.store.stand("get_range", slowly(0.5))
            claims = [start(queue.claim(limit=EACH)) for _ in range(6)]
            await settle()
            pushed = await other.push("k", "later")
            found = await asyncio.gather(*claims)
            taken = sorted(job.payload for jobs in found for job in jobs)
            assert taken == list(range(6 * EACH))
            assert (await queue.get(pushed)).status == "queued"


@virtual
async def test_a_claim_of_other_kinds_does_not_wait_for_them() -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = await deep(patch)
        async with world.embedded(timeout_s=30.0) as queue:
            await queue.push("other", 1)
            world.store.stand("get_range", slowly(0.5))
            claims = [start(queue.claim(["k"], limit=EACH)) for _ in range(3)]
            await settle()
            (job,) = await queue.claim(["other"])
            assert job.payload == 1
            assert not any(claim.done() for claim in claims)
            await asyncio.gather(*claims)
