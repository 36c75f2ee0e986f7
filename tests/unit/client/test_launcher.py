"""Clients of a host start one broker for each queue."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq.broker.leader import Leader
from bucketq.client.client_connection import ClientConnection
from bucketq.client.launcher import HostLock, SpawnLauncher
from tests.environ import child_path
from tests.unit.client.clients import committer_of

HOLD = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the locks of tests apart from those of the machine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def test_one_has_the_lock_of_a_queue_at_a_time() -> None:
    first, second, other = HostLock("a"), HostLock("a"), HostLock("b")
    assert first.take()
    assert first.take()
    assert not second.take()
    assert other.take()
    first.release()
    first.release()
    assert second.take()
    assert not first.take()
    second.release()
    other.release()


def test_the_file_stays_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    lock = HostLock("a")
    assert lock.take()
    lock.release()
    (folder,) = tmp_path.iterdir()
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)


def squat(folder: Path, how: str) -> None:
    """Do to the folder of the locks what another user of the machine could do."""
    if how == "link":
        (folder.parent / "elsewhere").mkdir()
        folder.symlink_to("elsewhere")
    elif how == "file":
        folder.write_bytes(b"")
    else:
        folder.mkdir()
        folder.chmod(0o777 if how == "writable" else 0o700)
        if how == "owned":
            os.chown(folder, 65534, 65534)


@pytest.mark.parametrize("how", ["link", "file", "writable", "owned"])
async def test_a_folder_that_another_user_may_have_made_is_not_used(
    tmp_path: Path, url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    if how == "owned" and os.getuid() != 0:
        pytest.skip("only root may give files away")
    folder = tmp_path / f"bucketq-{os.getuid()}"
    squat(folder, how)
    with pytest.raises(bucketq.StoreRefusedError, match=f"cannot use {folder}, .* set TMPDIR"):
        HostLock("a").take()
    async with bucketq.connect(url) as queue:
        await queue.push("index", {})
    assert not (tmp_path / "elsewhere").exists() or not list((tmp_path / "elsewhere").iterdir())
    assert "no broker can be started here" in caplog.text
    assert str(folder) in caplog.text


@pytest.fixture
def holder() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.returncode = None
        process.kill()
        process.communicate()


def hand_over(lock: HostLock, started: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    def start(descriptor: int) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(descriptor,),
        )
        started.append(child)
        return child

    lock.hand_over(start)
    assert started[-1].stdout is not None
    assert started[-1].stdout.readline() == b"up\n"
    return started[-1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_has_the_lock_until_it_dies_however_it_dies(
    holder: list[subprocess.Popen[bytes]], number: signal.Signals
) -> None:
    lock = HostLock("a")
    assert lock.take()
    child = hand_over(lock, holder)
    assert not lock.take()
    os.kill(child.pid, number)
    os.waitpid(child.pid, 0)
    assert lock.take()
    lock.release()


def test_without_the_lock_nothing_is_handed_over() -> None:
    def start(_: int) -> subprocess.Popen[bytes]:
        raise AssertionError("nothing was to be started")

    HostLock("a").hand_over(start)


async def test_a_spawned_broker_is_started_once_while_it_has_the_lock(
    url: str, monkeypatch: pytest.MonkeyPatch, holder: list[subprocess.Popen[bytes]]
) -> None:
    commands: list[list[str]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        commands.append(command)
        child: subprocess.Popen[bytes] = popen(
            [sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=options["pass_fds"],
        )
        holder.append(child)
        return child

    monkeypatch.setattr("bucketq.client.launcher.subprocess.Popen", start)
    first, second = (SpawnLauncher(url, HostLock(url), 7.5) for _ in range(2))
    await first.launch(0)
    await second.launch(0)
    await first.launch(0)
    assert len(commands) == 1
    assert commands[0][1:4] == ["-m", "bucketq.cli", "serve"]
    assert url in commands[0]
    assert commands[0][-2:] == ["--idle-exit", "7.5"]
    await first.close()
    assert not HostLock(url).take(), "closing the client leaves it running"


async def test_the_first_client_of_a_host_is_the_broker_of_the_others(url: str) -> None:
    async with bucketq.connect(url) as first, bucketq.connect(url) as second:
        assert isinstance(committer_of(first), Leader)
        assert isinstance(committer_of(second), ClientConnection)
        job_id = await second.push("mail", 1)
        assert (await first.get(job_id)).payload == 1


async def test_when_the_first_client_is_closed_the_next_becomes_the_broker(url: str) -> None:
    async with bucketq.connect(url) as first:
        second = bucketq.connect(url)
        queue = await second.__aenter__()
        await first.push("mail", 1)
        claiming = asyncio.create_task(queue.claim("index", wait_s=30))
        await asyncio.sleep(0.05)
    await queue.push("index", 2)
    assert [job.payload for job in await claiming] == [2]
    stats = await queue.stats()
    assert stats.broker is not None
    assert stats.broker.epoch == 2
    assert isinstance(committer_of(queue), Leader)
    await second.__aexit__()
    async with bucketq.connect(url, mode="direct") as direct:
        stats = await direct.stats()
        assert stats.broker is not None
        assert stats.broker.address == ""


async def test_a_spawned_broker_outlives_its_client_and_ends_when_it_is_idle(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a client lets pass between two looks, or no client may have seen it.
    monkeypatch.setattr("bucketq.client.broker_client._IDLE_EXIT_S", 3.0)
    monkeypatch.setenv("PYTHONPATH", child_path())
    async with asyncio.timeout(30):
        async with bucketq.connect(url, launch="spawn") as queue:
            job_id = await queue.push("mail", 1)
            # Whoever finds it slow to start writes directly meanwhile.
            while (first := (await queue.stats()).broker) is None or not first.address:  # noqa: ASYNC110 - it is looked at
                await asyncio.sleep(0.1)
        async with bucketq.connect(url, launch="spawn") as queue:
            assert (await queue.get(job_id)).payload == 1
            again = (await queue.stats()).broker
            assert again == first, "it is the same broker"
        async with bucketq.connect(url, mode="direct") as direct:
            for _ in range(200):
                gone = (await direct.stats()).broker
                if gone is None or not gone.address:
                    return
                await asyncio.sleep(0.1)
    pytest.fail("it did not end")
