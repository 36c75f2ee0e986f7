"""What a deep queue guarantees if a server's answers are lost, and if processes are killed.

It spills, merges and sweeps all the time. Each test is run on each server, by ``clouds.contract``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bucketq.store.url import open_store
from tests.contract.faults import now_and_then, through
from tests.integration.deep_lives import DeepLives, judge, until_swept
from tests.integration.deep_program import POLICY, SETTINGS, open_deep
from tests.integration.payload_lives import PayloadLives
from tests.servers.proxy import FaultProxy
from tests.servers.server import Server

FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("mode", "jobs"),
    [
        ("embedded", 60),
        pytest.param("embedded", 300, marks=FULL),
        pytest.param("direct", 60, marks=FULL),
    ],
)
async def a_deep_queue_loses_and_doubles_nothing_if_answers_are_lost(
    server: Server, mode: str, jobs: int
) -> None:
    url, tokens = server.url(), [f"token-{number}" for number in range(jobs)]
    with FaultProxy(server.port, now_and_then(7, 0.2)) as faults:
        location = open_store(through(faults, server, url))
        queue, _ = open_deep(location.store, location.key, url, mode)
        completed = list[str]()
        async with queue:
            await queue.configure(**SETTINGS)
            for start in range(0, jobs, 10):
                await asyncio.gather(*(queue.push("mail", t) for t in tokens[start : start + 10]))
                for job in await queue.claim(limit=3):
                    await queue.complete(job)
                    completed.append(job.payload)
            assert (await queue.stats()).total("queued") == jobs - len(completed)
        assert sum(faults.struck.values()) >= 5, faults.struck
        await location.store.close()
    location = open_store(url)
    queue, _ = open_deep(location.store, location.key, url, "embedded")
    async with queue:
        for number in range(2 * POLICY.least_versions):
            await queue.configure(max_attempts=100 + number % 2)
        await until_swept(location.store, location.key)
        await queue.flush_archive()
    await judge(location.store, location.key, tokens, completed)
    await location.store.close()


@pytest.mark.parametrize("pairs", [2, pytest.param(20, marks=FULL)])
async def kills_between_any_two_steps_on_a_deep_queue_lose_and_double_nothing(
    server: Server, tmp_path: Path, pairs: int
) -> None:
    lives = DeepLives(server.url(), tmp_path)
    await lives.run(pairs)
    await lives.judge()


@pytest.mark.parametrize("pairs", [3, pytest.param(20, marks=FULL)])
async def kills_between_any_two_steps_lose_no_large_payload_and_leave_none_behind(
    server: Server, tmp_path: Path, pairs: int
) -> None:
    lives = PayloadLives(server.url(), tmp_path)
    await lives.run(pairs)
    await lives.judge()


TESTS = (
    a_deep_queue_loses_and_doubles_nothing_if_answers_are_lost,
    kills_between_any_two_steps_on_a_deep_queue_lose_and_double_nothing,
    kills_between_any_two_steps_lose_no_large_payload_and_leave_none_behind,
)
