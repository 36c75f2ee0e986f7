"""What every queue promises about groups and limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bucketq import InvalidRequestError, JobSpec, LimitInfo, Queue
from tests.contract.places import Place


def of_groups(*groups: str, kind: str = "report") -> list[JobSpec[Any]]:
    """Jobs of these groups, in this order; an empty name stands for no group."""
    return [
        JobSpec(kind=kind, payload=f"{group}{place}", group=group or None)
        for place, group in enumerate(groups)
    ]


async def claimed(queue: Queue[Any], *kinds: str, limit: int = 1, count: int = 100) -> list[str]:
    """The payloads of what some claims get, as long as they get something."""
    found = list[str]()
    while len(found) < count and (jobs := await queue.claim(*kinds, limit=limit)):
        found += [job.payload for job in jobs]
    return found


@pytest.mark.parametrize("limit", [1, 4])
async def test_groups_take_turns_and_keep_the_order_of_pushes(
    queue: Queue[Any], limit: int
) -> None:
    await queue.push_many(of_groups("big", "big", "big", "big", "small", "", "small", ""))
    order = ["5", "big0", "small4", "7", "big1", "small6", "big2", "big3"]
    assert await claimed(queue, limit=limit) == order


async def test_the_more_urgent_priority_goes_first_whatever_its_group(queue: Queue[Any]) -> None:
    await queue.push("report", "late", group="a")
    for group in ("b", "b", "c"):
        await queue.push("report", f"urgent {group}", group=group, priority=-1)
    assert await claimed(queue) == ["urgent b", "urgent c", "urgent b", "late"]


async def test_the_turn_outlives_the_process_that_served_it(place: Place) -> None:
    async with place.connect() as queue:
        await queue.push_many(of_groups("a", "a", "b", "b"))
        assert await claimed(queue, count=1) == ["a0"]
    async with place.connect() as queue:
        assert await claimed(queue, count=2) == ["b2", "a1"]


async def test_each_set_of_kinds_has_its_own_turns(queue: Queue[Any]) -> None:
    for kind in ("x", "y"):
        await queue.push_many(of_groups("a", "a", "b", "b", kind=kind))
    found = [(await claimed(queue, kind, count=1))[0] for kind in ("x", "y", "x", "y")]
    assert found == ["a0", "a0", "b2", "b2"]


async def test_no_more_jobs_of_a_kind_run_than_its_limit(queue: Queue[Any]) -> None:
    assert await queue.limit(kind="email", running=2) == "created"
    assert await queue.limit(kind="email", running=2) == "unchanged"
    await queue.push_many([JobSpec(kind="email", payload=n) for n in range(4)])
    await queue.push("other", "free")
    jobs = await queue.claim(limit=10)
    assert [job.payload for job in jobs] == [0, 1, "free"]
    assert await queue.claim(limit=10) == []
    (limit,) = await queue.limits()
    assert limit == LimitInfo(target="kind=email", running=2, active=2)
    assert limit.is_reached
    assert (await queue.stats()).limited == (limit,)
    waiting = asyncio.create_task(queue.claim("email", wait_s=30))
    await asyncio.sleep(0.05)
    await queue.complete(jobs[0])
    (job,) = await waiting
    assert job.payload == 2
    assert await queue.unlimit(kind="email")
    assert not await queue.unlimit(kind="email")
    assert [job.payload for job in await queue.claim(limit=10)] == [3]


async def test_a_group_obeys_its_own_limit_or_that_of_every_group(queue: Queue[Any]) -> None:
    await queue.limit(group="*", running=1)
    await queue.limit(group="acme", running=2)
    await queue.push_many(of_groups("acme", "acme", "acme", "beta", "beta", "", ""))
    jobs = await queue.claim(limit=10)
    assert [job.payload for job in jobs] == ["5", "acme0", "beta3", "6", "acme1"]
    assert {limit.target: limit.active for limit in await queue.limits(group="beta")} == {
        "group=*": 1
    }
    await queue.fail(jobs[2], "boom", delay_s=0)
    assert [job.payload for job in await queue.claim(limit=10)] == ["beta3"]


async def test_a_rate_lets_a_burst_start_and_then_one_after_the_other(queue: Queue[Any]) -> None:
    await queue.limit(kind="email", rate=3, period_s=1.5)
    await queue.push_many([JobSpec(kind="email", payload=n) for n in range(5)])
    burst = await queue.claim(limit=10)
    assert [job.payload for job in burst] == [0, 1, 2]
    (limit,) = await queue.limits(kind="email")
    assert (limit.rate, limit.period_s, limit.active) == (3, 1.5, 3)
    (fourth,) = await queue.claim(wait_s=30)  # Nothing else happens: the bucket wakes it.
    assert fourth.payload == 3
    assert fourth.claimed_at is not None
    assert burst[0].claimed_at is not None
    assert (fourth.claimed_at - burst[0].claimed_at).total_seconds() >= 0.5


async def test_retries_count_as_starts(queue: Queue[Any]) -> None:
    await queue.limit(group="acme", rate=2, period_s=3600)
    await queue.push("report", 1, group="acme")
    for _ in range(2):
        (job,) = await queue.claim()
        await queue.release(job)
    assert await queue.claim() == []
    assert (await queue.get(job.id)).group == "acme"


async def test_numbered_batches_obey_limits(queue: Queue[Any]) -> None:
    await queue.limit(group="*", running=1)
    await queue.push_many(of_groups("a", "a", "b"))
    opened = await queue.open_consumer("spark")
    state = await queue.claim_batch("spark", opened.epoch, 1, limit=10)
    assert state.jobs == 2


async def test_jobs_are_listed_by_group(queue: Queue[Any]) -> None:
    await queue.push_many(of_groups("a", "b", "", "a"))
    page = await queue.jobs(groups="a")
    assert [job.payload for job in page.jobs] == ["a0", "a3"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": "a"},
        {"kind": "a", "group": "b", "running": 1},
        {"kind": "a", "running": 0},
        {"kind": "*", "running": 1},
        {"group": "", "running": 1},
        {"group": "a", "rate": 5},
        {"group": "a", "period_s": 5},
        {"group": "a", "rate": 5, "period_s": 0.5},
        {"group": "a", "rate": 10**9, "period_s": 5},
    ],
)
async def test_a_limit_that_makes_no_sense_is_refused(
    queue: Queue[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.limit(**options)


@pytest.mark.parametrize("group", ["", "*", "x" * 129, "a\nb", 7])
async def test_a_group_that_is_none_is_refused(queue: Queue[Any], group: Any) -> None:
    with pytest.raises(InvalidRequestError):
        await queue.push("report", 1, group=group)
