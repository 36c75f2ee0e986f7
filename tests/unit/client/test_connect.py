"""Connections: used too early, too late, from elsewhere, or at an invalid place."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import ClosedError, CorruptStateError, NewerFormatError, StoreRefusedError
from bucketq.client.connect_arguments import Mode
from tests.environ import ROOT, child_path
from tests.unit.client.child import VERBS

MODES: list[Mode] = ["direct", "embedded", "auto"]
WITHOUT_GRPC: list[Mode] = ["direct", "embedded"]
"""For what gRPC does not survive: its own tasks cancelled, or its loop closed in a forked child."""


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    chosen: Mode = request.param
    return chosen


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "queue.json").as_uri()


def run_child(command: str, url: str, mode: Mode) -> list[str]:
    """Run a command of ``child.py``; return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.client.child", command, url, mode],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": child_path(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("verb", VERBS)
async def test_no_verb_works_on_a_closed_queue(mode: Mode, verb: str) -> None:
    async with bucketq.connect("memory://", mode=mode) as queue:
        pass
    with pytest.raises(ClosedError, match="is closed: connect again"):
        await VERBS[verb](queue)


@pytest.mark.parametrize("verb", VERBS)
async def test_no_verb_works_before_the_queue_is_open(mode: Mode, verb: str) -> None:
    with pytest.raises(ClosedError, match="async with bucketq"):
        await VERBS[verb](bucketq.connect("memory://", mode=mode))


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_works_from_another_event_loop(mode: Mode, verb: str) -> None:
    connection = bucketq.connect("memory://", mode=mode)
    with asyncio.Runner() as runner:
        queue = runner.run(connection.__aenter__())

        async def elsewhere() -> None:
            async with asyncio.timeout(60):
                await VERBS[verb](queue)

        with pytest.raises(ClosedError, match="belongs to another event loop"):
            asyncio.run(elsewhere())
        runner.run(connection.__aexit__())


async def test_a_waiting_claim_fails_when_the_queue_is_closed(mode: Mode) -> None:
    async with bucketq.connect("memory://", mode=mode) as queue:
        waiting = asyncio.create_task(queue.claim(wait_s=600))
        await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        with pytest.raises(ClosedError):
            await waiting


async def test_a_connection_is_opened_once(mode: Mode, url: str) -> None:
    connection = bucketq.connect(url, mode=mode)
    async with connection as queue:
        with pytest.raises(ClosedError, match="open already"):
            await connection.__aenter__()
        await queue.push("mail", 1)
    with pytest.raises(ClosedError):
        await connection.__aenter__()
    await connection.__aexit__()


async def test_an_error_inside_the_block_comes_out_of_it_and_what_was_asked_is_done(
    mode: Mode, url: str
) -> None:
    pushes = []

    async def main() -> None:
        async with bucketq.connect(url, mode=mode) as queue:
            pushes.append(asyncio.create_task(queue.push("mail", 1)))
            await asyncio.sleep(0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await main()
    job_id = await pushes[0]
    async with bucketq.connect(url, mode=mode) as queue:
        assert (await queue.get(job_id)).status == "queued"


@pytest.mark.parametrize("mode", WITHOUT_GRPC)
def test_a_program_that_ends_all_its_tasks_does_not_hang(mode: Mode, url: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), bucketq.connect(url, mode=mode) as queue:
            waiting = asyncio.create_task(queue.claim(wait_s=3600))
            await asyncio.sleep(0.01)
            for task in asyncio.all_tasks() - {asyncio.current_task(), waiting}:
                task.cancel()
            waiting.cancel()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(main())


@pytest.mark.parametrize("command", ["fork", "fork_blocking"])
def test_no_verb_works_in_a_forked_child_and_the_parent_is_not_affected(
    mode: Mode, url: str, command: str
) -> None:
    assert run_child(command, url, mode) == [*VERBS, "child ended with 0", "parent sees 2"]


@pytest.mark.parametrize("mode", WITHOUT_GRPC)
def test_a_forked_child_that_leaves_the_block_closes_nothing(mode: Mode, url: str) -> None:
    assert run_child("fork_and_leave", url, mode) == ["child ended with 7", "parent sees 1"]


def test_a_forked_child_that_leaves_the_blocking_block_closes_nothing(mode: Mode, url: str) -> None:
    assert run_child("fork_and_leave_blocking", url, mode) == [
        "child ended with 7",
        "parent sees 1",
    ]


def test_a_forked_child_can_connect_anew(mode: Mode, url: str) -> None:
    assert run_child("fork_and_connect", url, mode) == ["child ended with 0", "parent sees 2"]


# Places that cannot hold a queue.


async def opening(url: str, mode: Mode) -> None:
    async with asyncio.timeout(60), bucketq.connect(url, mode=mode) as queue:
        await queue.push("mail", 1)


async def test_a_directory_in_the_place_of_the_file_is_refused(
    mode: Mode, url: str, tmp_path: Path
) -> None:
    (tmp_path / "queue.json").mkdir()
    with pytest.raises(StoreRefusedError, match="is a directory"):
        await opening(url, mode)


async def test_a_file_in_the_place_of_a_directory_is_refused(mode: Mode, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreRefusedError, match="not a directory"):
        await opening((tmp_path / "file" / "queue.json").as_uri(), mode)


async def test_a_place_that_cannot_be_written_is_refused(mode: Mode) -> None:
    with pytest.raises(StoreRefusedError, match=r"/proc/bucketq.*queue\.json"):
        await opening("file:///proc/bucketq/queue.json", mode)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", CorruptStateError),
        (b"{}\n", CorruptStateError),
        (b"somebody's notes\n" * 1000, CorruptStateError),
        (b'{"format":99}\n', NewerFormatError),
    ],
    ids=["empty", "json", "text", "newer"],
)
async def test_a_file_that_is_not_a_queue_is_rejected_and_left_as_it_is(
    mode: Mode, url: str, tmp_path: Path, body: bytes, error: type[Exception]
) -> None:
    (tmp_path / "queue.json").write_bytes(body)
    with pytest.raises(error, match="queue"):
        await opening(url, mode)
    assert (tmp_path / "queue.json").read_bytes() == body


def test_a_full_disk_refuses_what_does_not_fit_and_nothing_is_lost(mode: Mode, url: str) -> None:
    message, statuses = run_child("fill_up", url, mode)
    assert "raise the limit on file sizes" in message
    assert statuses == "done queued queued"


@pytest.fixture
def guarded() -> Iterator[Path]:
    """A directory with queues that others may not write, one of them not even read."""
    # Not below pytest's own directory, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="bucketq-test-") as name:
        folder = Path(name)
        for queue_name in ("readable.json", "secret.json"):
            with bucketq.connect_sync((folder / queue_name).as_uri()) as queue:
                queue.push("mail", 1)
        (folder / "readable.json").chmod(0o444)
        (folder / "secret.json").chmod(0)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def test_missing_rights_are_reported_and_reading_still_works_if_allowed(
    mode: Mode, guarded: Path
) -> None:
    before, written, after, secret, new = run_child("without_rights", guarded.as_uri(), mode)
    assert (before, after) == ("1", "1")
    for message in (written, secret, new):
        assert "permission denied; give this user permission" in message


async def test_a_failed_opening_leaves_no_thread_and_no_task(
    mode: Mode, url: str, tmp_path: Path
) -> None:
    (tmp_path / "queue.json").mkdir()
    tasks: Callable[[], set[asyncio.Task[Any]]] = asyncio.all_tasks
    before = tasks()
    for _ in range(3):
        with pytest.raises(StoreRefusedError):
            await opening(url, mode)
    assert tasks() == before


_MANY_THREADS = """
import threading
import bucketq
from pathlib import Path

def use() -> None:
    together.wait()
    try:
        with bucketq.connect_sync(Path("queue.json").absolute().as_uri()) as queue:
            queue.push("email", 1)
    except BaseException as error:
        print(type(error).__name__, error)

together = threading.Barrier(8)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_connect_for_the_first_time_at_once_all_can(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _MANY_THREADS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": child_path()},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("", "")
