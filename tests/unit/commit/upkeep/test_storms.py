"""Operations on all jobs of a deep queue: its object stays small, also while they last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bucketq.archive.archive_layout import Layout
from bucketq.archive.writer import ArchiveWriter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.register import Register
from bucketq.commit.upkeep import archiver
from bucketq.errors import JobNotFoundError
from bucketq.model.effects import operators
from bucketq.model.records import Backoff
from bucketq.queue import queue as queue_module
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, VirtualLoop, run

SPILL_BYTES = 16_000
MOST_BYTES = 4 * SPILL_BYTES
JOBS = 500
PAGE_JOBS = 18
"""What is true of a million jobs with the default sizes, sixteen times smaller."""


class Sizes:
    """The sizes of the queue object, as it is written."""

    def __init__(self, link: Any) -> None:
        self._replace = link.replace
        self.largest = self.last = 0
        link.replace = self._note

    async def _note(self, key: str, body: bytes, etag: str) -> str:
        if key == "queue.json":
            self.last = len(body)
            self.largest = max(self.largest, len(body))
        return str(await self._replace(key, body, etag))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_PAGE_JOBS", PAGE_JOBS)
    monkeypatch.setattr(operators, "_PAGE_JOBS", PAGE_JOBS)
    monkeypatch.setattr(archiver, "_LEAST_CROWD_BYTES", SPILL_BYTES // 4)


@asynccontextmanager
async def deep_queue(loop: VirtualLoop) -> AsyncIterator[tuple[Queue[Any], Sizes, list[str]]]:
    clock = SimulatedClock(loop)
    link = SimulatedStore(loop).connect("link")
    register = Register(link, "queue.json", "queue", clock)
    archive = ArchiveWriter(link, Layout.of("memory://", "queue.json"))
    backoff = Backoff(base_s=3600, max_s=3600)
    async with Queue[Any](GroupCommitter(register, clock, archive=archive), clock) as queue:
        await queue.configure(spill_bytes=SPILL_BYTES, max_dead=10**6, backoff=backoff)
        ids = list[str]()
        while len(ids) < JOBS:
            ids += await queue.push_many([JobSpec(kind="k", payload="x" * 100)] * 50)
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        sizes = Sizes(link)
        yield queue, sizes, ids
        assert 0 < sizes.largest < MOST_BYTES, "during the operation"
        await asyncio.sleep(5)
        assert sizes.last < 2 * SPILL_BYTES, "at the end"


async def fail_all(queue: Queue[Any], *, retry: bool) -> None:
    async def work() -> None:
        while jobs := await queue.claim(limit=10):
            await asyncio.gather(*(queue.fail(job, "no", retry=retry) for job in jobs))

    await asyncio.gather(*(work() for _ in range(2)))


async def in_turns(ids: list[str], do: Callable[[str], Awaitable[Any]]) -> None:
    rest = iter(ids)

    async def work() -> None:
        for job in rest:
            await do(job)

    await asyncio.gather(*(work() for _ in range(16)))


def test_jobs_that_all_fail_once_leave_a_small_object() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with deep_queue(loop) as (queue, _, _):
            await fail_all(queue, retry=True)
            assert (await queue.stats()).total("queued") == JOBS

    run(main)


def test_a_redrive_of_all_jobs_leaves_a_small_object() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with deep_queue(loop) as (queue, _, _):
            await fail_all(queue, retry=False)
            assert (await queue.stats()).total("dead") == JOBS
            assert await queue.redrive() == JOBS

    run(main)


def test_dead_jobs_that_are_too_many_leave_a_small_object() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with deep_queue(loop) as (queue, _, _):
            await fail_all(queue, retry=False)
            await queue.configure(max_dead=10)
            await asyncio.sleep(60)
            assert (await queue.stats()).total("dead") == 10

    run(main)


@pytest.mark.parametrize("step", [1, 7], ids=["in order", "in another order"])
def test_a_cancel_of_all_jobs_leaves_a_small_object(step: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        async with deep_queue(loop) as (queue, _, ids):
            order = [job for start in range(step) for job in ids[start::step]]
            await in_turns(order, queue.cancel)
            assert (await queue.stats()).total("queued") == 0
            await asyncio.sleep(20)
            with pytest.raises(JobNotFoundError):
                await queue.get(ids[0])

    run(main)
