"""Brokers of a queue with partitions are killed while clients push and claim: nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import JobSpec, Queue
from tests.chaos.fleet import BrokerProcess, Fleet
from tests.integration.conftest import SERVER_TOO
from tests.servers.running import running
from tests.servers.server import ENVIRON

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 4
PUSHES = 120
"""So many calls of each producer, one after the other: hand-overs and kills fall between them."""


@pytest.fixture(params=["file", SERVER_TOO])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A queue that is there, and empty."""
    if request.param == "file":
        address = (tmp_path / "queue.json").as_uri()
    else:
        for variable, value in ENVIRON.items():
            monkeypatch.setenv(variable, value)
        address = running(request.param).url()
    mark = "&" if "?" in address else "?"
    with bucketq.connect_sync(f"{address}{mark}partitions={PARTITIONS}", mode="direct"):
        pass
    return address


async def push(queue: Queue[Any], name: str, pushed: list[str]) -> None:
    """Push jobs alone, by group, and several to several partitions."""
    for number in range(PUSHES):
        if number % 3 == 0:
            pushed.append(await queue.push("k", number))
        elif number % 3 == 1:
            pushed.append(await queue.push("k", number, group=f"{name}-{number % 7}"))
        else:
            specs = [JobSpec(kind="k", payload=n, group=f"{name}-{n}") for n in range(5)]
            pushed.extend(await queue.push_many(specs))
        await asyncio.sleep(0.02)


async def work(queue: Queue[Any], done: list[str]) -> None:
    while True:
        for job in await queue.claim(limit=3, wait_s=5):
            try:
                await queue.complete(job)
            except bucketq.LeaseLostError:
                continue
            done.append(job.id)


async def archived(url: str) -> AsyncIterator[str]:
    async with bucketq.open_archive(url) as archive:
        async for job in archive.jobs(datetime.now(UTC) - timedelta(hours=2)):
            yield job.id


async def until(pushed: list[str], count: int) -> None:
    while len(pushed) < count:  # noqa: ASYNC110 - it is looked at, not told
        await asyncio.sleep(0.05)


async def wait_for(broker: BrokerProcess, epochs: int) -> None:
    """Wait until a broker has led so many partitions."""
    async with asyncio.timeout(40):
        while len(broker.epochs) < epochs:
            assert broker.returncode is None, broker.text()
            await asyncio.sleep(0.05)


async def test_killed_brokers_lose_and_repeat_no_job(processes: Fleet, url: str) -> None:
    first = processes.serve(url)
    await wait_for(first, PARTITIONS)
    second = processes.serve(url)
    await wait_for(second, PARTITIONS // 2)  # They share the partitions.
    pushed: list[str] = []
    done: list[str] = []
    async with (
        bucketq.connect(url, mode="remote", timeout_s=60) as one,
        bucketq.connect(url, mode="auto", launch="never", timeout_s=60) as other,
    ):
        producers = [
            asyncio.create_task(push(q, n, pushed)) for n, q in {"a": one, "b": other}.items()
        ]
        workers = [asyncio.create_task(work(queue, done)) for queue in (one, other, other)]
        await until(pushed, 60)
        first.kill()
        await wait_for(second, PARTITIONS)
        third = processes.serve(url)
        await until(pushed, 300)
        await wait_for(third, 1)
        second.kill()
        await asyncio.gather(*producers)
        async with asyncio.timeout(90):
            while (await one.stats()).total("queued") or (await one.stats()).total("running"):
                assert not any(worker.done() for worker in workers)
                await asyncio.sleep(0.2)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await one.flush_archive()
        assert (await one.stats()).counts == {}
    assert len(set(pushed)) == len(pushed)
    found = Counter([job_id async for job_id in archived(url)])
    assert found.keys() == set(pushed)
    assert set(found.values()) == {1}
    assert set(done) <= set(pushed)
