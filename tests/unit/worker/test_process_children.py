"""Processes that handlers start: they work as anywhere, and end with the process of the handler."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bucketq.worker.context import Context
from bucketq.worker.handlers import bind
from bucketq.worker.runners import processes
from bucketq.worker.runners.processes import ProcessDied, ProcessRunner
from tests.unit.worker import forking_handlers
from tests.unit.worker.engine_harness import claimed_job

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fork": forking_handlers.fork_and_die,
    "leak": forking_handlers.die_without_hooks,
    "hang": forking_handlers.start_and_hang,
    "compute": forking_handlers.compute,
    "terminate": forking_handlers.terminate,
    "terminate-fork": forking_handlers.terminate_a_fork,
}
HANDLERS = {
    kind: bind(kind, function, run_in="process", timeout_s=0.1)
    for kind, function in FUNCTIONS.items()
}


@pytest.fixture
async def runner() -> AsyncIterator[ProcessRunner]:
    one = ProcessRunner(HANDLERS)
    yield one
    await one.close()


async def run(runner: ProcessRunner, kind: str, payload: Any = None) -> Any:
    job = claimed_job(payload, kind=kind)
    return await runner.run(HANDLERS[kind], Context(job), lambda: None)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be asked about does not."""
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(is_so: Callable[[], bool], patience_s: float = 30) -> None:
    late_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < late_s, "it took too long"
        await asyncio.sleep(0.01)


def noted(mark: Path) -> list[int]:
    return [int(word) for word in mark.read_text().split()]


@pytest.mark.parametrize("kind", ["fork", "leak"])
async def test_the_death_of_a_process_is_noticed_while_one_that_it_started_lives(
    runner: ProcessRunner, tmp_path: Path, kind: str
) -> None:
    """It has inherited the pipe that would show the death; it is killed, too."""
    mark = tmp_path / "mark"
    async with asyncio.timeout(45):
        with pytest.raises(ProcessDied, match="exit code 7"):
            await run(runner, kind, str(mark))
    (left,) = noted(mark)
    await until(lambda: not is_alive(left))


async def test_a_handler_that_is_to_stop_is_ended_with_the_programs_that_it_runs(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    running = asyncio.create_task(run(runner, "hang", str(mark)))
    await until(mark.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not any(map(is_alive, noted(mark))))


async def test_a_worker_that_ends_ends_what_handlers_have_started(tmp_path: Path) -> None:
    runner = ProcessRunner(HANDLERS)
    mark = tmp_path / "mark"
    running = asyncio.create_task(run(runner, "hang", str(mark)))
    await until(mark.exists)
    await runner.close()
    with pytest.raises((ProcessDied, asyncio.CancelledError)):
        await running
    await until(lambda: not any(map(is_alive, noted(mark))))


@pytest.mark.parametrize("method", ["fork", "spawn"])
async def test_multiprocessing_works_in_a_handler(runner: ProcessRunner, method: str) -> None:
    async with asyncio.timeout(50):
        assert await run(runner, "compute", method) == [0, 1, 4, 9]


@pytest.mark.parametrize("kind", ["terminate", "terminate-fork"])
async def test_what_a_handler_starts_can_be_terminated(runner: ProcessRunner, kind: str) -> None:
    """The process of a handler ignores SIGTERM, and its children do not inherit that."""
    async with asyncio.timeout(45):
        assert await run(runner, kind) == -signal.SIGTERM


async def test_a_process_that_is_never_ready_fails_the_attempt_of_a_handler_with_a_timeout(
    runner: ProcessRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("BUCKETQ_TEST_HANGS", str(mark))
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_START_S", 3.0)
        async with asyncio.timeout(45):
            with pytest.raises(ProcessDied, match="not ready after 3 s"):
                await run(runner, "compute", "fork")
    assert not runner._busy
    if mark.exists():
        assert not is_alive(noted(mark)[0])
    monkeypatch.delenv("BUCKETQ_TEST_HANGS")
    assert await run(runner, "terminate") == -signal.SIGTERM


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_handler_that_is_to_stop_is_not_waited_for_while_its_process_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_closed: bool
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("BUCKETQ_TEST_HANGS", str(mark))
    runner = ProcessRunner(HANDLERS)
    running = asyncio.create_task(run(runner, "compute", "fork"))
    await until(lambda: mark.exists() and bool(mark.read_text()))
    async with asyncio.timeout(15):
        if is_closed:
            await runner.close()
        else:
            running.cancel()
        with pytest.raises((asyncio.CancelledError, ProcessDied)):
            await running
    await until(lambda: not is_alive(noted(mark)[0]))
    await runner.close()


async def test_a_fork_of_the_worker_ends_no_handler_of_it(
    runner: ProcessRunner, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    running = asyncio.create_task(run(runner, "hang", str(mark)))
    await until(mark.exists)
    (child,) = runner._busy.values()
    with warnings.catch_warnings():
        # Later versions of Python warn that this process has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        copy = os.fork()
    if copy == 0:
        child.kill()
        os._exit(0)
    await asyncio.to_thread(os.waitpid, copy, 0)
    assert all(map(is_alive, noted(mark)))
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
