"""Pages: many dead jobs are redriven and purged in them; a search may end before one is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq.dashboard.job_views import page_of
from bucketq.model.operations import List, Page
from bucketq.queue import queue as queue_module
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import World, virtual


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_PAGE_JOBS", 3)


async def kill(queue: Queue[Any], count: int) -> None:
    """Let jobs die."""
    if not count:
        return
    await queue.push_many([JobSpec(kind="mail", payload=number) for number in range(count)])
    for job in await queue.claim(limit=count):
        await queue.fail(job, "no", retry=False)


async def version(queue: Queue[Any]) -> int:
    return (await queue.stats()).version


async def dead(queue: Queue[Any]) -> int:
    return (await queue.stats()).total("dead")


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 8])
@virtual
async def test_all_are_changed_a_page_at_a_time(verb: str, count: int) -> None:
    world = World()
    async with world.direct() as queue:
        await kill(queue, count)
        before = await version(queue)
        assert await getattr(queue, verb)() == count
        assert await dead(queue) == 0
        pages = -(-count // 3)
        assert await version(queue) - before == pages


@pytest.mark.parametrize(("limit", "commits"), [(1, 1), (2, 1), (3, 1), (5, 2), (6, 2), (99, 3)])
@virtual
async def test_a_limit_holds_for_all_pages_together(limit: int, commits: int) -> None:
    world = World()
    async with world.direct() as queue:
        await kill(queue, 8)
        before = await version(queue)
        assert await queue.redrive(limit=limit) == min(limit, 8)
        assert await dead(queue) == 8 - min(limit, 8)
        assert await version(queue) - before == commits


@virtual
async def test_jobs_that_are_named_are_changed_in_one_commit() -> None:
    world = World()
    async with world.direct() as queue:
        await kill(queue, 5)
        names = [job.id for job in (await queue.jobs(statuses=["dead"])).jobs]
        before = await version(queue)
        assert await queue.redrive(names) == 5
        assert await version(queue) == before + 1


@virtual
async def test_jobs_that_die_again_meanwhile_are_not_redriven_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    async with world.direct() as queue:
        await kill(queue, 7)
        send = queue._sender.send

        async def send_and_fail(operation: Any, token: str | None = None) -> Any:
            answer = await send(operation, token)
            if type(operation).__name__ == "Redrive":
                monkeypatch.setattr(queue._sender, "send", send)
                for job in await queue.claim(limit=9):
                    await queue.fail(job, "no", retry=False)
                monkeypatch.setattr(queue._sender, "send", send_and_fail)
            return answer

        monkeypatch.setattr(queue._sender, "send", send_and_fail)
        assert 7 <= await queue.redrive() <= 12


class Stepped:
    """A committer whose pages of jobs end before they are full, as those of a deep queue do."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def send(self, operation: List) -> Page:
        self.asked.append(operation.after)
        return Page((), operation.after + 10 if operation.after < 30 else None)


@virtual
async def test_a_partial_page_is_answered_after_one_step() -> None:
    world = World()
    async with world.direct() as queue:
        stepped = Stepped()
        queue._sender.send = stepped.send  # type: ignore[method-assign,assignment]
        assert (await queue.jobs(tags={"a": "b"}, partial=True)).next_after == 10
        assert stepped.asked == [0]
        assert (await queue.jobs(tags={"a": "b"})).next_after is None
        assert stepped.asked == [0, 0, 10, 20, 30]


@virtual
async def test_a_page_of_the_dashboard_ends_after_a_second() -> None:
    world = World()
    async with world.direct() as queue:

        class Slow(Stepped):
            async def send(self, operation: List) -> Page:
                await asyncio.sleep(0.6)
                return await super().send(operation)

        slow = Slow()
        queue._sender.send = slow.send  # type: ignore[method-assign,assignment]
        page = await page_of(queue, {"tags": {"a": "b"}}, 0)
        assert (page.jobs, page.next_after) == ((), 20)
        assert slow.asked == [0, 10]
        assert (await page_of(queue, {"tags": {"a": "b"}}, 20)).next_after is None
