"""Checking the history of a queue: what is missing or damaged, and what copies keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bucketq.admin.deep_check import check_deep
from bucketq.admin.history_check import HistoryCheck, check_history
from bucketq.commit.objects.queue_history import HistoryPolicy
from tests.unit.admin.deep_queues import Deep, deep


async def with_history(world: Deep) -> list[str]:
    """Fill a queue that has a history; return the keys of its history objects."""
    world.history_policy = HistoryPolicy(copy_s=5.0)
    await world.fill(60, history_retention_s=300.0)
    async with world.open() as queue:
        for _ in range(12):
            for job in await queue.claim(limit=5):
                await queue.complete(job)
            await asyncio.sleep(2)
    return await world.keys("queue/history/")


async def checked(world: Deep) -> HistoryCheck:
    found = await check_history(world.object())
    assert found is not None
    return found


@deep
async def test_a_sound_history_has_no_problems(world: Deep) -> None:
    keys = await with_history(world)
    found = await checked(world)
    assert found.problems == []
    assert found.objects == len(keys) > 1
    assert found.size_bytes == sum([len(await world.body(key)) for key in keys])


@deep
async def test_a_queue_without_history_has_none_to_check(world: Deep) -> None:
    await world.fill()
    assert await check_history(world.object()) is None


def _cut(body: bytes) -> bytes:
    return body[:-9]


def _flip(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


@pytest.mark.parametrize("change", [_cut, _flip, None], ids=["cut", "changed", "missing"])
def test_every_object_that_is_damaged_or_missing_is_found(
    change: Callable[[bytes], bytes] | None,
) -> None:
    @deep
    async def main(world: Deep) -> None:
        for key in await with_history(world):
            link, body = world.store.connect("operator"), await world.body(key)
            if change is None:
                await link.delete(key)
            else:
                await link.put(key, change(body))
            problems = " ".join((await checked(world)).problems)
            if change is not None:
                assert "damaged" in problems
            elif key.endswith(".jsonl"):
                assert "no object has the changes of version" in problems
            else:
                assert "the copy of version" in problems
                assert "is missing" in problems
            await link.put(key, body)
        assert (await checked(world)).problems == []

    main()


@deep
async def test_segments_that_only_copies_name_are_not_left_over(world: Deep) -> None:
    await with_history(world)
    found = await check_deep(world.object())
    assert found.history is not None
    assert found.history.named - set((await world.head()).cold.rows.segments)
    assert found.orphans == []
