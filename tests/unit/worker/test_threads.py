"""Handlers in threads, and those of another loop: cancelling and closing never hang."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from bucketq.client.loop_thread import LoopThread
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import UnfitPayload
from bucketq.worker.handlers import bind
from bucketq.worker.runners.caller_loop import CallerLoopRunner
from bucketq.worker.runners.runner import HandlerExit, Runners
from bucketq.worker.runners.threads import ThreadRunner
from tests.unit.worker.engine_harness import claimed_job


@pytest.fixture
async def threads() -> AsyncIterator[ThreadRunner]:
    runner = ThreadRunner()
    yield runner
    await runner.close()
    assert not runner._pending


async def run(runner: Any, function: Any, payload: Any = None, **options: Any) -> Any:
    handler = bind("mail", function, **options)
    return await runner.run(handler, Context(claimed_job(payload)), lambda: None)


async def test_as_many_threads_are_started_as_run_at_once(threads: ThreadRunner) -> None:
    meeting = threading.Barrier(4)

    def meet() -> str:
        meeting.wait(10)
        return threading.current_thread().name

    names = await asyncio.gather(*(run(threads, meet) for _ in range(4)))
    assert len(set(names)) == 4
    again = await asyncio.gather(*(run(threads, meet) for _ in range(4)))
    assert set(again) == set(names), "they are kept for the next"


async def test_a_cancelled_handler_in_a_thread_is_waited_for(
    threads: ThreadRunner,
) -> None:
    began, gate = threading.Event(), threading.Event()

    def wait(context: Context) -> bool:
        began.set()
        gate.wait(10)
        return context.cancelled

    running = asyncio.create_task(run(threads, wait))
    await asyncio.to_thread(began.wait, 10)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0.01)
    assert not running.done()
    gate.set()
    assert await running is False


async def test_closing_does_not_wait_for_threads_that_do_not_end() -> None:
    runner, began, gate = ThreadRunner(), threading.Event(), threading.Event()
    of_others = set(threading.enumerate())

    def wait() -> None:
        began.set()
        gate.wait(150)

    running = asyncio.create_task(run(runner, wait))
    await asyncio.to_thread(began.wait, 10)
    began_s = time.monotonic()
    await runner.close()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began_s < 60
    started = set(threading.enumerate()) - of_others
    living = [one for one in started if one.name.startswith("bucketq handler")]
    assert living
    assert all(one.daemon for one in living)
    with pytest.raises(asyncio.CancelledError):
        await run(runner, wait)
    gate.set()
    for one in living:
        one.join(10)


async def test_what_a_handler_raises_in_a_thread_is_raised(threads: ThreadRunner) -> None:
    def fail() -> None:
        raise ValueError("no")

    def leave() -> None:
        raise SystemExit(3)

    def add(payload: int) -> int:
        return payload + 1

    with pytest.raises(ValueError, match="no"):
        await run(threads, fail)
    with pytest.raises(HandlerExit, match=r"SystemExit\(3\)"):
        await run(threads, leave)
    with pytest.raises(UnfitPayload):
        await run(threads, add, "one")
    assert await run(threads, add, 1) == 2


async def test_a_plain_function_that_returns_a_coroutine_is_an_error(threads: ThreadRunner) -> None:
    """A decorator that does not support async functions makes one like this."""

    async def work() -> None:
        """Never be run."""

    def wrapper() -> Any:
        return work()

    with pytest.raises(TypeError, match=r'pass run_in="loop"'):
        await run(threads, wrapper)


async def test_a_thread_sees_the_context_variables_of_its_caller(threads: ThreadRunner) -> None:
    wish: ContextVar[str] = ContextVar("wish")
    wish.set("tea")
    assert await threads.call(wish.get) == "tea"


async def test_handlers_run_on_the_callers_loop_for_an_engine_on_another() -> None:
    home = asyncio.get_running_loop()
    seen: list[asyncio.AbstractEventLoop] = []

    async def work(payload: int) -> int:
        seen.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        if payload == 13:
            raise ValueError("unlucky")
        return payload

    async def engine() -> list[Any]:
        runner = CallerLoopRunner(home)
        several = [run(runner, work, number) for number in range(500)]
        ends = await asyncio.gather(*several, return_exceptions=True)
        assert not runner._calls
        return ends

    ends = await elsewhere(engine)
    assert [end for end in ends if not isinstance(end, Exception)] == [
        number for number in range(500) if number != 13
    ]
    assert isinstance(ends[13], ValueError)
    assert set(seen) == {home}


async def test_a_handler_on_the_callers_loop_is_cancelled_there_and_may_still_return() -> None:
    home = asyncio.get_running_loop()
    inside = threading.Event()

    async def stubborn() -> str:
        inside.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "I was not finished"
        return "never"

    async def meek() -> None:
        inside.set()
        await asyncio.sleep(30)

    async def engine() -> list[Any]:
        ends: list[Any] = []
        for work in (stubborn, meek):
            runner = CallerLoopRunner(home)
            running = asyncio.create_task(run(runner, work))
            await asyncio.to_thread(inside.wait, 10)
            inside.clear()
            running.cancel()
            ends += await asyncio.gather(running, return_exceptions=True)
            assert not runner._calls
        return ends

    first, second = await elsewhere(engine)
    assert first == "I was not finished"
    assert isinstance(second, asyncio.CancelledError)


async def test_a_handler_that_is_cancelled_before_its_loop_starts_it_never_runs() -> None:
    home = asyncio.get_running_loop()
    ran: list[str] = []

    async def work() -> None:
        ran.append("oh")

    async def engine() -> list[Any]:
        runner = CallerLoopRunner(home)
        blocked = threading.Event()

        def block() -> None:
            blocked.set()
            time.sleep(0.2)

        home.call_soon_threadsafe(block)
        await asyncio.to_thread(blocked.wait, 10)
        running = asyncio.create_task(run(runner, work))
        await asyncio.sleep(0.01)
        running.cancel()
        return list(await asyncio.gather(running, return_exceptions=True))

    (end,) = await elsewhere(engine)
    assert isinstance(end, asyncio.CancelledError)
    assert not ran


async def test_closing_does_not_wait_for_handlers_on_the_callers_loop() -> None:
    home = asyncio.get_running_loop()
    inside, gate = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        inside.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    async def engine() -> Any:
        runners = Runners({"loop": CallerLoopRunner(home), "thread": ThreadRunner()})
        running = asyncio.create_task(run(runners, work))
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(inside.wait(), home))
        await runners.close()
        return await asyncio.gather(running, return_exceptions=True)

    (end,) = await elsewhere(engine)
    assert isinstance(end, asyncio.CancelledError)
    gate.set()


async def elsewhere(engine: Any) -> Any:
    """Run an engine on a loop of its own."""
    loop_thread = LoopThread()
    try:
        running = asyncio.run_coroutine_threadsafe(engine(), loop_thread.loop)
        return await asyncio.wait_for(asyncio.wrap_future(running), 30)
    finally:
        await asyncio.to_thread(loop_thread.stop)
