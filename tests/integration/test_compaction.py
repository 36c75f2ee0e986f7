"""Compactions that are killed at any point, or run at once, lose nothing and double nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Raw

import bucketq
from bucketq.archive.archive_layout import Layout
from bucketq.archive.compacted import open_log
from bucketq.archive.writer import ArchiveWriter
from bucketq.clock import SystemClock
from bucketq.model.records import JobRecord
from bucketq.store.base import ObjectStore
from bucketq.store.url import Location, open_store
from tests.servers.running import running
from tests.servers.server import ENVIRON

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.timeout(120)
"""Each test starts several processes, one after the other."""

SCRIPT = Path(__file__).with_name("compacting.py")
DAYS, FILES, JOBS = 2, 15, 20


class Seen:
    """What lies in the archive at a moment."""

    def __init__(self, keys: list[str], layout: Layout) -> None:
        self.archive_files = sum(layout.parse(key) is not None for key in keys)
        self.files = sum(key.endswith(".parquet") for key in keys)
        self.files -= (checkpoints := sum(".checkpoint." in key for key in keys))
        self.versions = sum("_delta_log/" in key and key.endswith(".json") for key in keys)
        self.checkpoints = checkpoints


POINTS: dict[str, Callable[[Seen, Seen], bool]] = {
    "while it writes files": lambda seen, before: seen.files > before.files,
    "when it has published": lambda seen, before: seen.versions > before.versions,
    "when it has a checkpoint": lambda seen, before: seen.checkpoints > before.checkpoints,
    "while it deletes archive files": lambda seen, before: (
        seen.archive_files < before.archive_files
    ),
}
"""When a compaction is killed, by what it has changed."""


_FULL = pytest.mark.full
_SERVER = pytest.mark.servers
_KILLED_ON = [pytest.param("file", marks=_FULL), pytest.param("seaweedfs", marks=_SERVER)]
_AT_ONCE_ON = ["file", pytest.param("seaweedfs", marks=[_SERVER, _FULL])]
"""Each store in every run, and both for both tests in a full one. On a file readers are fast enough
to see archive files that are deleted before what replaces them is published."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return (tmp_path / "queue.json").as_uri()
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    return running(request.param).url()


@pytest.fixture
async def place(url: str) -> AsyncIterator[Location]:
    """An archive of some days, some jobs of which stand in two archive files."""
    location = open_store(url)
    writer = ArchiveWriter(location.store, Layout.of(location.store.url, location.key))
    for day in range(DAYS):
        at = SystemClock().now().replace(minute=0) - timedelta(days=day + 2)
        for archive_file in range(FILES):
            first = (day * FILES + archive_file) * JOBS
            jobs = [finished(number, at) for number in range(max(first - 5, 0), first + JOBS)]
            same_day = [job for job in jobs if job.seq >= day * FILES * JOBS]
            await writer.write([(job, None) for job in same_day], archive_file)
    yield location
    await location.store.close()


def finished(number: int, at: datetime) -> JobRecord:
    moment = at.astimezone(UTC) + timedelta(seconds=number % 60)
    return JobRecord(
        id=f"job{number}",
        kind=f"kind{number % 3}",
        status="done",
        seq=number,
        payload=Raw(b"{}"),
        pushed_at=moment,
        finished_at=moment,
        outcome="completed",
    )


def started(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, SCRIPT, url], stderr=subprocess.PIPE)


async def look(place: Location) -> Seen:
    layout = Layout.of(place.store.url, place.key)
    return Seen([info.key async for info in place.store.list(layout.root)], layout)


async def names(url: str) -> list[str]:
    async with bucketq.open_archive(url) as archive:
        since = SystemClock().now() - timedelta(days=DAYS + 3)
        return [job.id async for job in archive.jobs(since)]


async def ended(process: subprocess.Popen[bytes]) -> None:
    _, errors = await asyncio.to_thread(process.communicate, timeout=50)
    assert process.returncode == 0, errors.decode()


def demand_whole(found: list[str], late: int = 0) -> None:
    assert sorted(found) == sorted(f"job{number}" for number in range(DAYS * FILES * JOBS + late))


async def write_late(place: Location, number: int) -> None:
    """Write another archive file, so that the next compaction has something to publish."""
    writer = ArchiveWriter(place.store, Layout.of(place.store.url, place.key))
    at = SystemClock().now().replace(minute=0) - timedelta(days=2)
    job = finished(DAYS * FILES * JOBS + number - 1, at)
    await writer.write([(job, None)], FILES + number)


@pytest.mark.parametrize("url", _KILLED_ON, indirect=True)
async def test_a_compaction_that_is_killed_loses_nothing_and_is_ended_by_the_next(
    url: str, place: Location
) -> None:
    for more, is_there in enumerate(POINTS.values(), start=1):
        await write_late(place, more)
        before, process = await look(place), started(url)
        # It happens in another process, which does not report it.
        while process.poll() is None and not is_there(await look(place), before):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.002)
        process.kill()
        process.communicate()
        demand_whole(await names(url), more)
    await ended(started(url))
    demand_whole(await names(url), len(POINTS))
    assert (await look(place)).archive_files == 0
    assert await doubled(place.store, Layout.of(place.store.url, place.key)) == 0


@pytest.mark.parametrize("url", _AT_ONCE_ON, indirect=True)
async def test_compactions_at_once_and_readers_beside_them_see_every_job_once(
    url: str, place: Location
) -> None:
    processes = [started(url) for _ in range(2)]
    while any(process.poll() is None for process in processes):
        demand_whole(await names(url))
    for process in processes:
        await ended(process)
    demand_whole(await names(url))
    seen = await look(place)
    assert seen.archive_files == 0
    assert await doubled(place.store, Layout.of(place.store.url, place.key)) == 0


async def doubled(store: ObjectStore, layout: Layout) -> int:
    """How many rows of the table are there more than jobs."""
    from bucketq.archive.parquet_format import copies_in  # noqa: PLC0415 - see importorskip

    log = open_log(store, layout)
    await log.refresh()
    jobs: list[tuple[str, int, datetime]] = []
    for file in log.files.values():
        key = layout.compacted + file.name
        first, last = file.span
        body = (await store.get(key)).body
        jobs += copies_in(body, first, last + timedelta(seconds=1), key)
    return len(jobs) - len(set(jobs))
