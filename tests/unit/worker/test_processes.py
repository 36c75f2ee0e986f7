"""Handlers in processes: what kills one costs one attempt, and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from bucketq.model.records import Progress
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import GiveUp, HandlerFailed, Retry, Snooze, UnfitPayload
from bucketq.worker.handlers import bind
from bucketq.worker.runners.processes import ProcessDied, ProcessRunner, _Child
from bucketq.worker.runners.reply import Reply
from tests.unit.worker import process_handlers
from tests.unit.worker.engine_harness import claimed_job

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        process_handlers.who,
        process_handlers.echo,
        process_handlers.widen,
        process_handlers.widen_soon,
        process_handlers.die,
        process_handlers.refuse,
        process_handlers.hang,
        process_handlers.unsayable,
        process_handlers.push_some,
        process_handlers.report,
        process_handlers.report_soon,
    )
}
HANDLERS = {kind: bind(kind, function, run_in="process") for kind, function in FUNCTIONS.items()}


class Shop:
    """A runner, and a short way to use it."""

    def __init__(self) -> None:
        self.runner = ProcessRunner(HANDLERS)

    async def run(self, kind: str, payload: Any = None) -> Any:
        job = claimed_job(payload, kind=kind)
        return await self.runner.run(HANDLERS[kind], Context(job), lambda: None)


async def test_jobs_that_a_handler_pushes_arrive_with_its_result(shop: Shop) -> None:
    for count in (2, 0, 3):
        context = Context(claimed_job(count, kind="push-some"))
        ids = await shop.runner.run(HANDLERS["push-some"], context, lambda: None)
        jobs = context.end()
        assert ids == [job.id for job in jobs] == [f"next-{number}" for number in range(count)]
        assert [bytes(job.payload) for job in jobs] == [b"%d" % n for n in range(count)]


async def test_progress_is_seen_while_the_handler_runs(shop: Shop, tmp_path: Path) -> None:
    pids = set[int]()
    last = {"report": Progress(1000, 1000, "rows"), "report-soon": Progress(1)}
    for number, kind in enumerate(("report", "report-soon", "report")):
        go = tmp_path / f"go{number}"
        context = Context(claimed_job(str(go), kind=kind))
        running = asyncio.create_task(shop.runner.run(HANDLERS[kind], context, lambda: None))
        await until(lambda: context.reported == last[kind])  # noqa: B023 - called at once
        go.touch()
        pids.add(await running)
    assert len(pids) == 1
    # Reports of a handler that is over are not taken for those of the next one.
    for kind in ("report", "echo", "report", "echo"):
        context = Context(claimed_job("", kind=kind))
        await shop.runner.run(HANDLERS[kind], context, lambda: None)
        if kind == "echo":
            await asyncio.sleep(0.2)
            assert context.reported is None


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    one = Shop()
    yield one
    children = [child.process.pid or 0 for child in one.runner._idle]
    await one.runner.close()
    assert not any(map(is_alive, children))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(is_so: Callable[[], bool], patience_s: float = 20) -> None:
    late_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < late_s, "it took too long"
        await asyncio.sleep(0.01)


async def test_a_process_is_kept_for_the_next_job_and_takes_and_gives_what_json_can_hold(
    shop: Shop,
) -> None:
    first = await shop.run("who")
    assert first != os.getpid()
    assert await shop.run("who") == first
    for value in (None, 7, "ü", b"\x00\xff", {"a": [1, None]}):
        assert await shop.run("echo", value) == value
    assert await shop.run("widen", {"name": "cat", "width": 5}) == {"name": "cat", "width": 10}
    assert await shop.run("widen-soon", {"name": "cat", "width": 5}) == ["cat", 1]
    with pytest.raises(UnfitPayload, match="cannot be decoded as Picture"):
        await shop.run("widen", {"name": "cat"})
    with pytest.raises(Retry, match="later") as again:
        await shop.run("refuse", "retry")
    assert again.value.delay_s == 90
    with pytest.raises(Snooze, match="not yet") as put_off:
        await shop.run("refuse", "snooze")
    assert put_off.value.delay_s == 60
    with pytest.raises(GiveUp, match="never"):
        await shop.run("refuse", "give up")
    with pytest.raises(HandlerFailed) as failed:
        await shop.run("refuse", "words")
    assert str(failed.value).startswith("ValueError: bad \\udcff words\n")
    assert "in refuse" in str(failed.value)
    with pytest.raises(HandlerFailed, match="cannot be encoded as JSON"):
        await shop.run("unsayable")
    with pytest.raises(HandlerFailed, match=r"raised SystemExit\(3\)"):
        await shop.run("die", "sys.exit")
    assert await shop.run("who") == first, "none of this ends the process"


async def test_a_process_that_dies_takes_one_attempt_with_it_and_the_next_job_is_fine(
    shop: Shop,
) -> None:
    first = await shop.run("who")
    with pytest.raises(ProcessDied, match="was ended by SIGKILL"):
        await shop.run("die", "killed")
    assert await shop.run("die", "not") != first
    with pytest.raises(ProcessDied, match="exit code 7"):
        await shop.run("die", "exit")
    assert await shop.run("die", "not") > 0


async def test_a_process_that_was_ended_while_it_waited_costs_no_job_an_attempt(
    shop: Shop,
) -> None:
    first = await shop.run("who")
    os.kill(first, signal.SIGKILL)
    shop.runner._idle[0].process.join(10)
    assert await shop.run("who") != first


async def test_a_handler_that_is_to_stop_is_ended_with_its_process(
    shop: Shop, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    running = asyncio.create_task(shop.run("hang", str(mark)))
    await until(mark.exists)
    child = int(mark.read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_alive(child)
    assert not shop.runner._busy
    assert await shop.run("who") != child


async def test_the_answer_of_a_handler_counts_if_its_process_is_killed_after_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await shop.run("who")
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    ask = _Child.ask

    def answer_late(child: _Child, *args: Any) -> Reply:
        reply = ask(child, *args)
        loop.call_soon_threadsafe(asked.set)
        child.process.join(10)  # It is ended while its answer is on its way.
        return reply

    with monkeypatch.context() as patched:
        patched.setattr(_Child, "ask", answer_late)
        running = asyncio.create_task(shop.run("who"))
        await asked.wait()
        running.cancel()
        assert await running == first
        assert not shop.runner._idle
    assert await shop.run("who") != first


async def test_a_worker_that_ends_ends_the_processes_of_handlers_that_run(tmp_path: Path) -> None:
    shop = Shop()
    mark = tmp_path / "mark"
    running = asyncio.create_task(shop.run("hang", str(mark)))
    await until(mark.exists)
    await shop.runner.close()
    assert not is_alive(int(mark.read_text()))
    with pytest.raises((ProcessDied, asyncio.CancelledError)):
        await running


async def test_a_process_that_cannot_start_fails_the_attempt_and_leaves_nothing_open(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.run("who")
    (child,) = shop.runner._idle
    child.process.kill()
    child.process.join(10)
    monkeypatch.setenv("BUCKETQ_TEST_BROKEN", "1")
    counts = []
    for _ in range(3):
        with pytest.raises(ProcessDied, match="exit code 1"):
            await shop.run("who")
        counts.append(open_files())
    assert counts[0] == counts[-1]


async def test_signals_to_the_whole_group_end_no_process_not_even_one_that_starts(
    shop: Shop,
) -> None:
    starting = asyncio.create_task(shop.runner._threads.call(partial(_Child, HANDLERS)))
    child: _Child = await starting
    for number in (signal.SIGTERM, signal.SIGINT):
        assert child.process.pid is not None
        os.kill(child.process.pid, number)  # It has hardly begun to import what it needs.
    await shop.runner._threads.call(child.until_ready)
    shop.runner._idle.append(child)
    os.kill(child.process.pid or 0, signal.SIGTERM)
    assert await shop.run("who") == child.process.pid


async def test_nothing_that_comes_from_a_job_is_ever_unpickled(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.run("who")

    def refuse(*_: object) -> None:
        raise AssertionError("this pickles")

    monkeypatch.setattr(Connection, "recv", refuse)
    monkeypatch.setattr(Connection, "send", refuse)
    bomb = b"cos\nsystem\n(S'exit 1'\ntR."
    assert await shop.run("echo", bomb) == bomb


def test_a_process_that_two_threads_close_at_once_is_closed_once() -> None:
    child = _Child({})
    child.until_ready()
    together = threading.Barrier(8)
    troubles: list[BaseException] = []

    def close() -> None:
        together.wait()
        try:
            child.close()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            troubles.append(error)

    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
