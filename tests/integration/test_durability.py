"""What a queue in a file acknowledges is on the disk, whoever wrote it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bucketq
from bucketq.client.connect_arguments import Mode
from tests.environ import child_path
from tests.unit.store.disk import Disk

MODES: list[Mode] = ["direct", "embedded", "auto"]

KILLED_BEFORE_THE_SYNC = """
import asyncio, os, signal, stat, sys
import bucketq

fsync = os.fsync

def kill(descriptor):
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)

async def main():
    async with bucketq.connect(sys.argv[1], mode="direct") as queue:
        os.fsync = kill
        await queue.push("index", {"page": 1}, key="page-1")

asyncio.run(main())
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


@pytest.fixture
def folder(tmp_path: Path) -> int:
    """The inode of the directory of the queue."""
    return tmp_path.stat().st_ino


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def push_and_be_killed_before_the_directory_is_synced(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_THE_SYNC, url],
        env={**os.environ, "PYTHONPATH": child_path()},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize("mode", MODES)
async def test_a_push_is_not_acknowledged_while_its_directory_cannot_be_synced(
    url: str, disk: Disk, mode: Mode
) -> None:
    async with bucketq.connect(url, mode=mode, timeout_s=20) as queue:
        await queue.push("index", {})
        disk.failures_left = -1
        for _ in range(3):
            with pytest.raises(bucketq.NotDurableError, match="check the disk"):
                await queue.push("index", {})


@pytest.mark.parametrize("mode", MODES)
async def test_a_queue_stops_after_one_failed_sync_because_the_next_one_proves_nothing(
    url: str, disk: Disk, mode: Mode
) -> None:
    """Linux reports an error of a sync once, and forgets what it could not write."""
    async with bucketq.connect(url, mode=mode, timeout_s=20) as queue:
        await queue.push("index", {})
        disk.failures_left = 1
        with pytest.raises(bucketq.NotDurableError) as caught:
            await queue.push("index", {"page": 1})
        assert disk.failures_left == 0
        for verb in (queue.push("index", {}), queue.claim(), queue.stats()):
            with pytest.raises(bucketq.NotDurableError, match="connect again"):
                await verb
    async with bucketq.connect(url, mode=mode, timeout_s=20) as queue:
        await queue.push("index", {"page": 1}, request=caught.value.request)
        assert (await queue.stats()).total("queued") == 2


@pytest.mark.parametrize("mode", MODES)
async def test_a_push_that_another_process_left_unsynced_is_synced_before_it_counts_as_a_duplicate(
    url: str, disk: Disk, mode: Mode, folder: int
) -> None:
    push_and_be_killed_before_the_directory_is_synced(url)
    async with bucketq.connect(url, mode=mode) as queue:
        await queue.push("index", {"page": 1}, key="page-1")
        assert folder in disk.synced
        assert (await queue.stats()).total("queued") == 1


async def test_a_job_that_another_process_left_unsynced_is_synced_before_it_is_shown(
    url: str, disk: Disk, folder: int
) -> None:
    async with bucketq.connect(url, mode="direct") as queue:
        push_and_be_killed_before_the_directory_is_synced(url)
        disk.synced.clear()
        assert (await queue.stats()).total("queued") == 1
        assert disk.synced == [folder]
        await queue.stats()
        assert disk.synced == [folder], "it was known to be durable, and synced again"


async def test_finished_jobs_stay_in_the_queue_if_the_archive_cannot_be_synced(
    url: str, disk: Disk
) -> None:
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("index", {})
        for job in await queue.claim():
            await queue.complete(job)
        disk.failures_left = 1
        with pytest.raises(bucketq.NotDurableError):
            await queue.flush_archive()
    async with bucketq.connect(url, mode="direct") as connected:
        assert (await connected.stats()).total("done") == 1
