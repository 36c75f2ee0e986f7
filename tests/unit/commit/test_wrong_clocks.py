"""One host whose clock is wrong neither erases what others rely on nor keeps it for ever."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.virtual_loop import current_loop
from tests.unit.commit.worlds import KEY, World, virtual

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
AGING = ("sessions", "keys", "tokens", "consumers", "writers", "jobs")


class Hosts(World):
    """A world with hosts whose clocks differ, and short commands on them."""

    def host(self, ahead_s: float) -> Queue[Any]:
        clock = SimulatedClock(current_loop(), offset_s=ahead_s)
        register = Register(self.store, KEY, "test://queue", clock)
        return Queue(DirectCommitter(register, clock), clock)

    async def push(self, ahead_s: float = 0.0, key: str | None = None, **options: Any) -> str:
        """Push as a command does, that opens the queue, writes once, and ends."""
        async with self.host(ahead_s) as queue:
            job_id: str = await queue.push("mail", key, key=key, **options)
            return job_id

    async def keys(self) -> list[str]:
        return [row.id for row in (await self.state()).keys]

    async def rows(self) -> dict[str, set[str]]:
        body = json.loads(await self.body())
        return {table: {row["id"] for row in body.get(table, ())} for table in AGING}


async def crowded() -> Hosts:
    """A queue in use, with a row in each table that ages."""
    world = Hosts()
    async with world.direct() as queue:
        await queue.push("mail", 1, key="k", max_attempts=1)
        [job] = await queue.claim()
        await queue.fail(job, "boom")
        await queue.create_token("t", ["push"], ttl_s=DAY_S)
        await queue.open_consumer("c")
        await queue.publish("w", 1, [JobSpec(kind="mail", payload=1)])
    return world


@pytest.mark.parametrize("ahead_s", [2 * HOUR_S, 40 * DAY_S])
@pytest.mark.parametrize("pushes", [1, 5])
@pytest.mark.shallow
@virtual
async def test_one_host_that_is_ahead_erases_nothing(ahead_s: float, pushes: int) -> None:
    world = await crowded()
    before = await world.rows()
    for _ in range(pushes):
        await world.push(ahead_s)
    after = await world.rows()
    for table in AGING:
        assert before[table] <= after[table], table
    assert next(iter((await world.state()).jobs)).status == "dead"


@virtual
async def test_a_keyed_retry_finds_its_job_after_a_host_that_is_ahead_has_pushed() -> None:
    world = Hosts()
    job_id = await world.push(key="k")
    for _ in range(30):
        await asyncio.sleep(60)
        await world.push(2 * HOUR_S)
        assert await world.push(key="k") == job_id


@virtual
async def test_a_host_that_is_ahead_and_alone_erases_no_key_before_its_time() -> None:
    world = Hosts()
    job_id = await world.push(key="k")
    for _ in range(59):
        await asyncio.sleep(60)
        await world.push(2 * HOUR_S)
    assert await world.push(key="k") == job_id


@pytest.mark.parametrize("step_s", [2 * HOUR_S, 40 * DAY_S])
@virtual
async def test_a_process_whose_clock_is_set_forward_erases_no_key_before_its_time(
    step_s: float,
) -> None:
    world = Hosts()
    async with world.embedded() as queue:
        await queue.push("mail", 1, key="k")
        world.clock.jump(step_s)
        for _ in range(59):
            await asyncio.sleep(60)
            await queue.push("mail", 2)
        assert "k" in await world.keys()


@virtual
async def test_a_key_of_a_host_that_is_ahead_is_known_to_the_others() -> None:
    world = Hosts()
    job_id = await world.push(2 * HOUR_S, key="k")
    assert await world.push(key="k") == job_id


@pytest.mark.parametrize("pause_s", [60.0, 600.0, DAY_S])
@virtual
async def test_keys_are_forgotten_however_seldom_there_are_commits(pause_s: float) -> None:
    world = Hosts()
    await world.push(key="k")
    for _ in range(2 + int(3 * HOUR_S / pause_s)):
        await asyncio.sleep(pause_s)
        await world.push()
    assert await world.keys() == []


@virtual
async def test_keys_are_forgotten_on_time_while_there_are_commits() -> None:
    world = Hosts()
    await world.push(key="k")
    for _ in range(61):
        await asyncio.sleep(60)
        await world.push()
    assert await world.keys() == []


@virtual
async def test_a_daily_push_under_the_same_key_makes_a_job_every_day() -> None:
    world = Hosts()
    jobs = set()
    for _ in range(4):
        jobs.add(await world.push(key="report"))
        await asyncio.sleep(DAY_S)
    assert len(jobs) == 4


@pytest.mark.parametrize("ahead_s", [2 * HOUR_S, 400 * DAY_S])
@virtual
async def test_a_key_from_the_future_does_not_keep_the_others(ahead_s: float) -> None:
    world = Hosts()
    async with world.direct() as queue:
        await queue.configure(max_keys=100)
    await world.push(ahead_s, key="future")
    for number in range(300):
        await asyncio.sleep(60)
        await world.push(key=f"key-{number}")
    assert len(await world.keys()) < 70


@virtual
async def test_a_table_full_of_keys_from_the_future_takes_new_ones() -> None:
    world = Hosts()
    async with world.direct() as queue:
        await queue.configure(max_keys=10)
    for number in range(10):
        await world.push(400 * DAY_S, key=f"future-{number}")
    for number in range(10):
        await world.push(key=f"key-{number}")
    assert {f"key-{number}" for number in range(10)} == set(await world.keys())


@virtual
async def test_a_full_table_makes_room_by_the_clock_of_the_push_and_for_no_more() -> None:
    world = Hosts()
    async with world.direct() as queue:
        await queue.configure(max_keys=10)
    for number in range(10):
        await world.push(key=f"key-{number}")
    await world.push(2 * HOUR_S, key="ahead")
    assert await world.keys() == [*(f"key-{number}" for number in range(1, 10)), "ahead"]


@virtual
async def test_a_key_from_another_year_does_not_block_its_name() -> None:
    world = Hosts()
    wrong = await world.push(400 * DAY_S, key="report")
    right = await world.push(key="report")
    assert right != wrong
    assert await world.push(key="report") == right


@virtual
async def test_a_host_that_is_behind_erases_nothing_and_delays_expiry_by_no_more_than_that() -> (
    None
):
    world = Hosts()
    job_id = await world.push(key="k")
    for minute in range(4 * 60 + 2):
        await asyncio.sleep(60)
        await world.push(-3 * HOUR_S)
        await world.push()
        if minute < 58:
            assert await world.push(key="k") == job_id
    assert await world.keys() == []


@virtual
async def test_a_queue_that_was_created_with_a_clock_that_is_ahead_comes_to_the_right_time() -> (
    None
):
    world = Hosts()
    await world.push(2 * HOUR_S)
    job_id = await world.push(key="k")
    for _ in range(50):
        await asyncio.sleep(60)
        await world.push(2 * HOUR_S)
        assert await world.push(key="k") == job_id


@virtual
async def test_a_token_is_revoked_by_a_host_whose_clock_finds_it_expired() -> None:
    world = Hosts()
    async with world.direct() as queue:
        await queue.create_token("leaked", ["push"], ttl_s=HOUR_S)
        [leaked] = await queue.tokens()
    async with world.host(2 * HOUR_S) as queue:
        assert await queue.revoke_token(leaked.id)
    async with world.direct() as queue:
        assert await queue.tokens() == []


@virtual
async def test_a_session_from_the_future_does_not_keep_the_others() -> None:
    world = Hosts()
    await world.push(400 * DAY_S)
    for _ in range(60):
        await asyncio.sleep(60)
        await world.push()
    assert len((await world.state()).sessions.table) < 15
