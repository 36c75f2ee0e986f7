"""Processes with large payloads, killed at any step, on a file and on an S3 server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import Queue
from bucketq.archive.side_folder import SideFolder
from bucketq.clock import SystemClock
from bucketq.model.effects import side_refs
from bucketq.model.side_objects import object_name
from bucketq.store.url import open_store
from tests.chaos.fleet import Fleet, fleet
from tests.integration.conftest import SERVER_TOO
from tests.integration.payload_lives import PayloadLives
from tests.integration.payload_program import MOST_VERSIONS, SETTINGS, VERSIONS, payload_of
from tests.integration.program import Log
from tests.servers.running import running
from tests.servers.server import ENVIRON

pytestmark = pytest.mark.timeout(180)

BROKER = [sys.executable, "-m", "tests.integration.mortal_broker"]
DEATHS = ("part after 1", "part before 2", "commit before 1", "commit after 1")
MORE_DEATHS = (
    *("marker before 1", "marker after 1", "part before 1", "part after 2"),
    *("unmark before 1", "unmark after 1", "commit before 2", "commit after 2"),
)


@pytest.fixture(params=["file", SERVER_TOO])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a queue that is not there yet."""
    if request.param == "file":
        return (tmp_path / "queue.json").as_uri()
    for variable, value in ENVIRON.items():
        monkeypatch.setenv(variable, value)
    return running(request.param).url()


@pytest.fixture(autouse=True)
def _orphans_are_swept_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, too."""
    monkeypatch.setattr(side_refs, "_VERSIONS", VERSIONS)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Fleet]:
    """Processes that end with the test."""
    with fleet(tmp_path) as started:
        yield started
    assert started.complaints() == ""


@pytest.mark.parametrize(
    ("pairs", "seed"), [(6, 7), *(pytest.param(25, n, marks=pytest.mark.full) for n in range(3))]
)
async def test_kills_between_any_two_steps_lose_no_payload_and_leave_none_behind(
    tmp_path: Path, url: str, pairs: int, seed: int
) -> None:
    lives = PayloadLives(url, tmp_path, seed)
    await lives.run(pairs)
    await lives.judge()


async def test_workers_that_are_killed_while_they_fetch_lose_nothing(
    tmp_path: Path, url: str
) -> None:
    lives = PayloadLives(url, tmp_path)
    lives.whens = ("fetch",)
    await lives.run(1)
    await lives.judge()
    assert len(lives.logged("completed")) > 0


async def finish(queue: Queue[Any], tokens: list[str], log: Log) -> None:
    """Push jobs with large payloads, and complete them with large results."""
    for token in tokens:
        await queue.push("film", payload_of(token))
        log.write("pushed", token)
    for job in await queue.claim(limit=len(tokens)):
        assert job.payload == payload_of(job.payload.rstrip("."))
        await queue.complete(job, job.payload)
        log.write("completed", job.payload.rstrip("."))


async def test_a_prune_that_is_killed_again_and_again_deletes_what_it_should(
    tmp_path: Path, url: str
) -> None:
    lives, log = PayloadLives(url, tmp_path), Log(str(tmp_path / "log-0"))
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.configure(**SETTINGS)
        for number in range(3):  # Each is an archive file of its own.
            await finish(queue, [f"done-{number}", f"done-1{number}"], log)
            await queue.flush_archive()
        live = await queue.push("film", payload_of("live-0"))
        kills = await asyncio.to_thread(lives.repeat, "prune", 2) - 1
        assert kills > 3
        (job,) = await queue.claim()
        assert (job.id, job.payload) == (live, payload_of("live-0"))
    # Only what the queue names is left, and no archive.
    log_of_the_rest = tmp_path / "log-0"
    log_of_the_rest.write_text("pushed live-0\n")
    await lives.judge()


async def test_a_sweep_that_is_killed_again_and_again_deletes_orphans_only(
    tmp_path: Path, url: str
) -> None:
    lives, log = PayloadLives(url, tmp_path), Log(str(tmp_path / "log-0"))
    location = open_store(url)
    folder = SideFolder.of(location.store, location.key, SystemClock())
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.configure(**SETTINGS | {"inline_bytes": 2000})
        await finish(queue, ["done-0", "done-1"], log)
        await queue.push("film", payload_of("live-0"))
        log.write("pushed", "live-0")
        snapshot = await queue.snapshot()
        for number in range(4):
            until, digest = snapshot.version + VERSIONS, f"{number:032x}"
            name = object_name(snapshot.incarnation, until, digest, "0" * 16)
            for part in range(3):
                await folder.put_marked(name, part, b"orphan", f"job-{number}", "payload")
        # A client that was killed after its commit leaves a marker of what is named.
        for job in snapshot.jobs:
            if job.status == "queued":
                name = bytes(job.payload).split(b'"')[3].decode()
                await folder.mark(name, job.id, "payload")
        for number in range(MOST_VERSIONS + 1):
            await queue.configure(max_attempts=100 + number % 2)
        kills = await asyncio.to_thread(lives.repeat, "sweep", 2) - 1
        assert kills > 3
    await location.store.close()
    await lives.judge()


@pytest.mark.parametrize("deaths", [DEATHS, pytest.param(MORE_DEATHS, marks=pytest.mark.full)])
async def test_brokers_that_are_killed_at_each_step_of_an_upload_lose_nothing(
    tmp_path: Path, url: str, processes: Fleet, deaths: tuple[str, ...]
) -> None:
    """Also at the commit that names it: the client does not know whether that took place."""
    lives, log = PayloadLives(url, tmp_path), Log(str(tmp_path / "log-0"))
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.configure(**SETTINGS)

    async def work() -> None:
        async with bucketq.connect(url, mode="remote", timeout_s=60) as queue:
            number = 0
            while True:
                await finish(queue, [f"token-{number}0"], log)
                number += 1

    broker = processes.serve(url, program=BROKER, BUCKETQ_TEST_DIE=deaths[0])
    await asyncio.to_thread(broker.wait_until_leading)
    working = asyncio.create_task(work())
    for death in (*deaths[1:], ""):
        await until_dead(broker, working)
        broker = processes.serve(url, program=BROKER, BUCKETQ_TEST_DIE=death)
    done = len(lives.logged("completed"))
    while len(lives.logged("completed")) < done + 3:
        assert not working.done(), working.result()
        await asyncio.sleep(0.05)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    broker.kill()
    await lives.judge()


async def until_dead(broker: Any, working: asyncio.Task[None]) -> None:
    until = datetime.now(UTC) + timedelta(seconds=60)
    while broker.returncode is None:
        assert datetime.now(UTC) < until, broker.text()
        assert not working.done(), working.result()
        await asyncio.sleep(0.02)
