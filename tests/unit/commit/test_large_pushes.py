"""Large pushes: their rows go to segments, and no fault of those delays or fails a push."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import Raw

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.errors import QueueFullError, StoreRefusedError, UnavailableError
from bucketq.model.base import NewJob
from bucketq.model.operations import Push, Request
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing import VirtualLoop, run
from tests.unit.commit.test_deep_queues import KEY, QUEUES, Deep

SLOW_S = 1000.0

Create = Callable[[str, bytes], Awaitable[str]]


def specs(count: int, start: int = 0, **options: Any) -> list[JobSpec[int]]:
    return [JobSpec(kind="k", payload=start + number, **options) for number in range(count)]


def intercept(queue: Queue[Any], put: Callable[[Create, str, bytes], Awaitable[str]]) -> None:
    """Let segments of a queue be put by ``put``."""
    link = queue._committer._register._store  # type: ignore[attr-defined]
    create = link.create

    async def create_or_put(key: str, body: bytes) -> str:
        return await (put(create, key, body) if "/segments/" in key else create(key, body))

    link.create = create_or_put


def heads(deep: Deep) -> list[bytes]:
    return [commit.body or b"" for commit in deep.store.history(KEY)]


def puts(deep: Deep) -> list[str]:
    return [commit.key for commit in deep.store.commits if "/segments/" in commit.key]


@pytest.mark.parametrize("queue_type", QUEUES)
def test_rows_of_a_large_push_are_written_once_and_not_to_the_object(
    queue_type: type[Any],
) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            ids = await queue.push_many(specs(100))
            assert len(puts(deep)) == 1
            assert all(b'"payload"' not in body for body in heads(deep))
            assert (await queue.stats()).counts == {"k": {"queued": 100}}
            assert [job.id for job in await queue.claim(limit=200)] == ids
        async with deep.open(queue_type) as queue:
            assert [job.id for job in (await queue.jobs(limit=200)).jobs] == ids

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_small_push_is_not_put(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            await queue.push_many(specs(5))
            assert puts(deep) == []

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_push_whose_segments_are_refused_goes_through_the_object(
    queue_type: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    tried = list[str]()

    async def refuse(_create: Create, key: str, _body: bytes) -> str:
        tried.append(key)
        raise StoreRefusedError("403 for segments")

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            intercept(queue, refuse)
            began = loop.time()
            ids = await queue.push_many(specs(100))
            assert loop.time() - began < 1
            tried.clear()
            for _ in range(3):
                ids += await queue.push_many(specs(10))
            pushed = [key for key in tried if "large pushes" in caplog.text]
            assert len(pushed) <= 3, "pushes do not try again at once"
            assert [job.id for job in await queue.claim(limit=200)] == ids
        assert caplog.text.count("large pushes go through the object") == 1

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_push_whose_segments_are_slow_goes_through_the_object(queue_type: type[Any]) -> None:
    hanging = list[str]()

    async def hang(create: Create, key: str, body: bytes) -> str:
        hanging.append(key)
        if len(hanging) == 1:
            await asyncio.sleep(SLOW_S)
        return await create(key, body)

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            intercept(queue, hang)
            began = loop.time()
            pushing = asyncio.create_task(queue.push_many(specs(100)))
            await asyncio.sleep(0.1)
            if queue_type is GroupCommitter:
                await queue.push("other", 1)
                assert loop.time() - began < 0.5, "other requests do not wait for it"
            ids = await pushing
            assert loop.time() - began < 2
            assert [job.id for job in await queue.claim("k", limit=200)] == ids

    run(main)


def test_of_a_push_in_several_segments_those_are_named_that_were_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bucketq.commit.large_pushes._PIECE_BYTES", 2000)
    tried = list[str]()

    async def refuse_the_second(create: Create, key: str, body: bytes) -> str:
        tried.append(key)
        if len(tried) == 2:
            await asyncio.sleep(0.1)
            raise StoreRefusedError("403 for segments")
        return await create(key, body)

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(DirectCommitter) as queue:
            intercept(queue, refuse_the_second)
            ids = await queue.push_many(specs(100))
            head = await deep.head()
            assert len(head.cold.rows.segments) == len(set(tried)) - 1 > 1
            assert 0 < len(head.jobs) < 50
            assert [job.id for job in await queue.claim(limit=200)] == ids

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_after_a_lost_race_nothing_is_put_again(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with (
            deep.open(queue_type) as queue,
            deep.open(DirectCommitter, "rival") as rival,
        ):
            rivals = list[str]()

            async def lose(create: Create, key: str, body: bytes) -> str:
                etag = await create(key, body)
                rivals.append(await rival.push("k", -1))
                return etag

            intercept(queue, lose)
            replaced = len(deep.store.history(KEY))
            ids = await queue.push_many(specs(100))
            assert len(puts(deep)) == 1
            (segment,) = (await deep.head()).cold.rows.segments.values()
            assert segment.record.base == 2
            assert len(deep.store.history(KEY)) == replaced + 2
            claimed = await queue.claim(limit=200)
            assert [job.id for job in claimed] == rivals + ids
            assert [job.payload for job in claimed] == [-1, *range(100)]

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_the_answer_of_a_put_may_be_lost(queue_type: type[Any]) -> None:
    async def lose(create: Create, key: str, body: bytes) -> str:
        await create(key, body)
        if len(lost) < 2:
            lost.append(key)
            raise UnavailableError("the answer was lost")
        return ""

    lost = list[str]()

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            intercept(queue, lose)
            ids = await queue.push_many(specs(100))
            assert [job.id for job in await queue.claim(limit=200)] == ids

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_nothing_is_put_for_a_push_that_is_refused_or_was_applied(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create(max_jobs=150)
        async with deep.open(queue_type) as queue:
            jobs = tuple(
                NewJob(id=f"j{number}", kind="k", payload=Raw(b"1")) for number in range(100)
            )
            request = Request(Push(jobs=jobs), "session", 1)
            ids = await queue._committer.submit(request, 60.0)
            with pytest.raises(QueueFullError):
                await queue.push_many(specs(100))
            assert await queue._committer.submit(request, 60.0) == ids
            assert len(puts(deep)) == 1

    run(main)


def test_a_queue_that_closes_commits_a_large_push_first() -> None:
    async def slow(create: Create, key: str, body: bytes) -> str:
        await asyncio.sleep(0.5)
        return await create(key, body)

    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(GroupCommitter) as queue:
            intercept(queue, slow)
            pushing = asyncio.create_task(queue.push_many(specs(100)))
            await asyncio.sleep(0.1)
        assert len(await pushing) == 100
        assert (await deep.head()).cold.rows.count("ready") == 100

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_a_numbered_batch_is_published_once(queue_type: type[Any]) -> None:
    async def main(loop: VirtualLoop) -> None:
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            assert await queue.publish("w", 1, specs(100))
            assert not await queue.publish("w", 1, specs(100))
            assert len(puts(deep)) == 1
            assert (await queue.stats()).counts == {"k": {"queued": 100}}

    run(main)


@pytest.mark.parametrize("queue_type", QUEUES)
def test_joined_pushes_go_to_segments_only_while_puts_are_quick(
    queue_type: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketq.commit.large_pushes._QUICK_PUT_S", 0.5)
    monkeypatch.setattr(queue_type, "joins", True)
    slow_s = 0.0

    async def delay(create: Create, key: str, body: bytes) -> str:
        await asyncio.sleep(slow_s)
        return await create(key, body)

    async def main(loop: VirtualLoop) -> None:
        nonlocal slow_s
        deep = Deep(loop)
        await deep.create()
        async with deep.open(queue_type) as queue:
            await queue.configure(spill_bytes=20_000)
            intercept(queue, delay)

            async def put_for(*sizes: int) -> int:
                """Push so many jobs each at once; return how many segments were put for them."""
                before = len(puts(deep))
                await asyncio.gather(*(queue.push_many(specs(size)) for size in sizes))
                put = len(puts(deep)) - before
                await asyncio.sleep(2)  # Rows of the object spill meanwhile.
                return put

            assert await put_for(40) == 0, "it is not large"
            assert await put_for(40, 40, 40) == 1, "large together"
            slow_s = 0.6
            assert await put_for(40, 40, 40) == 1, "tried, and slow"
            assert await put_for(40, 40, 40) == 0, "slow just before"
            assert await put_for(10, 100) == 1, "one is large by itself"
            await asyncio.sleep(11)
            assert await put_for(40, 40, 40) == 1, "tried again"
            assert (await queue.stats()).total("queued") == 40 + 4 * 120 + 110

    run(main)
