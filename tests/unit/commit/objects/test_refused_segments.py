"""A store that refuses segments, or lets their puts hang: commits go on without them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from bucketq.commit.group_committer import GroupCommitter
from bucketq.errors import StoreRefusedError
from bucketq.queue.queue import Queue
from bucketq.testing import VirtualLoop, run
from tests.unit.commit.test_deep_queues import QUEUES, Deep


def before_segments(queue: Queue[Any], do: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Let something happen before each put of a segment; return a function that ends it."""
    link = queue._committer._register._store  # type: ignore[attr-defined]
    create = link.create

    async def create_later(key: str, body: bytes) -> str:
        if "/segments/" in key:
            await do()
        return str(await create(key, body))

    link.create = create_later
    return lambda: setattr(link, "create", create)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_commits_go_on_while_segments_are_refused(
    queue_type: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:

            async def refuse() -> None:
                raise StoreRefusedError("403 for segments")

            mend = before_segments(queue, refuse)
            ids = [await queue.push("k", number) for number in range(100)]
            await asyncio.sleep(30)
            jobs = await queue.claim(limit=50)
            assert [job.id for job in jobs] == ids[:50]
            assert await queue.complete_many(jobs) == [True] * 50
            await queue.release((await queue.claim())[0])
            assert "403 for segments" in caplog.text
            # Not by the text: in a process in which tests of Spark ran, that had it twice.
            told = {id(each) for each in caplog.records if "cannot be written" in each.getMessage()}
            assert len(told) == 1
            mend()
            await asyncio.sleep(200)
            ids += [await queue.push("k", number) for number in range(100, 120)]
            await asyncio.sleep(200)
            assert (await deep.head()).cold.rows.segments
            assert [job.id for job in await queue.claim(limit=100)] == ids[50:]

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_put_that_hangs_delays_a_commit_for_seconds_only(
    queue_type: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            before_segments(queue, lambda: asyncio.sleep(1000))
            slowest_s = 0.0
            for number in range(100):
                began_s = loop.time()
                await queue.push("k", number)
                slowest_s = max(slowest_s, loop.time() - began_s)
            assert slowest_s < 3
            assert len(await queue.claim(limit=100)) == 100
            assert queue_type is GroupCommitter or "takes longer than 2 s" in caplog.text

    run(main)
