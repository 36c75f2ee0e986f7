"""A stopped process holds the lock of a queue's file: what others can still do, and report."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq.queue.queue import Queue
from tests.chaos.fleet import Fleet, fleet

pytestmark = pytest.mark.timeout(120)

HOLDER = """
import fcntl, os, signal, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
PROMPT_S = 15.0
"""Far more than anything takes that does not wait for the lock, even on a busy machine."""
LONG_S = 60.0
"""A time limit that no test ever waits for."""


@pytest.fixture
def folder() -> Iterator[Path]:
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="bucketq-test-") as name:
        yield Path(name)


@pytest.fixture
def url(folder: Path) -> str:
    return (folder / "queue.json").as_uri()


@pytest.fixture
def processes(folder: Path) -> Iterator[Fleet]:
    with fleet(folder) as started:
        yield started
    assert started.complaints() == ""


@contextmanager
def stopped_holder(folder: Path) -> Iterator[int]:
    """A stopped process that holds the lock of a directory; it is killed in the end."""
    command = [sys.executable, "-c", HOLDER, str(folder / ".bucketq.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            os.waitpid(process.pid, os.WUNTRACED)
            yield process.pid
        finally:
            process.kill()


@asynccontextmanager
async def opened(url: str, mode: Any, timeout_s: float = LONG_S) -> AsyncIterator[Queue[Any]]:
    """A queue with one job in it."""
    async with bucketq.connect(url, mode=mode, timeout_s=timeout_s) as queue:
        await queue.push("index", "committed", id="one")
        yield queue


async def check_reads(queue: Queue[Any], count: int) -> None:
    """See that reads are answered, and show what is committed and no more."""
    async with asyncio.timeout(PROMPT_S):
        assert (await queue.stats()).counts == {"index": {"queued": count}}
        assert (await queue.get("one")).payload == "committed"
        assert len((await queue.jobs()).jobs) == count
        assert len((await queue.snapshot()).jobs) == count
        with pytest.raises(bucketq.JobNotFoundError):
            await queue.get("two")


async def end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_reads_are_answered_while_a_write_waits_for_the_lock(
    folder: Path, url: str, mode: str
) -> None:
    async with opened(url, mode) as queue:
        with stopped_holder(folder) as pid:
            push = asyncio.create_task(queue.push("index", "in doubt", id="two"))
            await asyncio.sleep(0)
            for _ in range(3):
                await check_reads(queue, 1)
            assert not push.done()
            os.kill(pid, signal.SIGCONT)
            async with asyncio.timeout(PROMPT_S):
                assert await push == "two"
        async with asyncio.timeout(PROMPT_S):
            assert (await queue.stats()).counts == {"index": {"queued": 2}}
            assert (await queue.get("two")).payload == "in doubt"


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_a_read_sees_what_another_process_committed_before_the_lock_was_held(
    folder: Path, url: str, mode: str
) -> None:
    async with opened(url, mode) as queue, opened_again(url) as other:
        with stopped_holder(folder):
            push = asyncio.create_task(queue.push("index", "in doubt", id="two"))
            await check_reads(queue, 1)
        await other.push("index", "acknowledged", id="three")
        async with asyncio.timeout(PROMPT_S):
            assert (await queue.get("three")).payload == "acknowledged"
            await push


@asynccontextmanager
async def opened_again(url: str) -> AsyncIterator[Queue[Any]]:
    async with bucketq.connect(url, mode="direct", timeout_s=LONG_S) as queue:
        yield queue


@pytest.mark.parametrize("mode", ["direct", "embedded", "auto"])
async def test_the_error_names_the_lock_and_its_holder_though_the_timeout_is_short(
    folder: Path, url: str, mode: str
) -> None:
    async with opened(url, mode, timeout_s=2) as queue:
        with stopped_holder(folder) as pid:
            with pytest.raises(bucketq.UnavailableError) as caught:
                await queue.push("index", "in doubt")
            check_message(caught.value, folder, pid)


def check_message(error: bucketq.UnavailableError, folder: Path, pid: int) -> None:
    message = str(error)
    assert f"{folder}/.bucketq.lock" in message
    assert "kill -CONT" in message
    if sys.platform == "linux":
        assert f"process {pid}, which is stopped, holds" in message
        assert f"kill -CONT {pid}" in message
    assert message.count("the outcome is unknown") == 1
    assert error.request is not None


@pytest.mark.parametrize("mode", ["direct", "embedded"])
async def test_closing_does_not_wait_for_a_lock_that_no_caller_waits_for(
    folder: Path, url: str, mode: str
) -> None:
    with ExitStack() as until_closed:
        async with opened(url, mode) as queue:
            until_closed.enter_context(stopped_holder(folder))
            push = asyncio.create_task(queue.push("index", "in doubt", id="two"))
            await check_reads(queue, 1)
            await end(push)
            began = time.monotonic()
        assert time.monotonic() - began < PROMPT_S


async def unavailable(call: Awaitable[Any]) -> bucketq.UnavailableError:
    with pytest.raises(bucketq.UnavailableError) as caught:
        await call
    return caught.value


async def test_a_broker_answers_reads_names_the_lock_and_ends_in_time(
    folder: Path, url: str, processes: Fleet
) -> None:
    async with opened(url, "direct"):
        pass
    broker = processes.serve(url)
    broker.wait_until_leading()
    async with (
        bucketq.connect(url, mode="remote", timeout_s=3) as writer,
        bucketq.connect(url, mode="remote", timeout_s=LONG_S) as reader,
    ):
        await check_reads(reader, 1)
        with stopped_holder(folder) as pid:
            push = asyncio.create_task(writer.push("index", "in doubt", id="two"))
            await asyncio.sleep(0.1)
            await check_reads(reader, 1)
            error = await unavailable(push)
            for _ in range(5):
                if "lock" in str(error):
                    break  # If either process was too busy, the client gave up by itself.
                error = await unavailable(writer.push("index", "in doubt", request=error.request))
            check_message(error, folder, pid)
            await check_reads(reader, 1)
            began = time.monotonic()
            broker.send(signal.SIGTERM)
            await asyncio.to_thread(broker.wait, 60)
            # Its drain is 12 s. It used to wait for that twice.
            assert time.monotonic() - began < 22
