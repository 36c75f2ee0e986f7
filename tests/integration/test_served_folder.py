"""Brokers of a folder that join and are killed, while clients push and claim: nothing is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bucketq
from bucketq.store.queue_search import QueueFolder
from tests.environ import child_environ
from tests.integration.conftest import SERVER_TOO
from tests.servers.running import running
from tests.servers.server import ENVIRON

pytestmark = pytest.mark.timeout(180)
QUEUES, JOBS = 4, 60
"""So many jobs are pushed to each queue, one after the other: hand-overs and a kill fall between
them."""
EVEN_S = 60.0


@pytest.fixture(params=["file", SERVER_TOO])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return f"{tmp_path.as_uri()}/"
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    address, mark, options = running(request.param).url().partition("?")
    return f"{address.rpartition('/')[0]}/{mark}{options}"


@contextmanager
def serving(folder: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bucketq.cli", "serve", folder, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environ())
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["address"]
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


async def push_all(url: str, number: int) -> list[str]:
    ids = list[str]()
    async with bucketq.connect(url, launch="never", timeout_s=60) as queue:
        for count in range(JOBS):
            ids.append(await queue.push("k", count, id=f"{number}-{count}"))
            await asyncio.sleep(0.05)
    return ids


async def leaders(folder: str) -> Counter[str]:
    """How many queues each broker leads, by what the objects say."""
    found = Counter[str]()
    search = QueueFolder(folder)
    for each in await search.find():
        async with bucketq.connect(each.url, mode="direct") as queue:
            broker = (await queue.stats()).broker
            found[broker.address if broker else ""] += 1
    await search.close()
    return found


async def until(folder: str, is_so: Callable[[Counter[str]], bool]) -> None:
    """Look until the brokers lead as many queues as they should."""
    async with asyncio.timeout(EVEN_S):
        while not is_so(await leaders(folder)):  # noqa: ASYNC110 - it is looked at, not told
            await asyncio.sleep(0.5)


def is_even(led: Counter[str]) -> bool:
    return sorted(led.values()) == [QUEUES // 2] * 2 and "" not in led


async def test_a_second_broker_takes_its_share_and_all_if_the_first_is_killed(folder: str) -> None:
    address, mark, options = folder.partition("?")
    urls = [f"{address}q{number}.json{mark}{options}" for number in range(QUEUES)]
    for url in urls:
        async with bucketq.connect(url, mode="direct"):
            pass
    with serving(folder) as first:
        pushing = [asyncio.create_task(push_all(url, n)) for n, url in enumerate(urls)]
        with serving(folder) as second:
            await until(folder, is_even)
            first.kill()
            pushed = await asyncio.gather(*pushing)
            await until(folder, lambda led: len(led) == 1)
            assert second.poll() is None
            for number, (url, ids) in enumerate(zip(urls, pushed, strict=True)):
                assert ids == [f"{number}-{count}" for count in range(JOBS)]
                async with bucketq.connect(url, launch="never") as queue:
                    jobs = await queue.claim(limit=QUEUES * JOBS)
                    assert [job.payload for job in jobs] == [*range(JOBS)]
