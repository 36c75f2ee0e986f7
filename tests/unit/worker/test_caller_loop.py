"""Handlers that share a task on the caller's loop do not notice each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from bucketq.worker.context import Context
from bucketq.worker.handlers import bind
from bucketq.worker.runners.caller_loop import CallerLoopRunner
from tests.unit.worker.engine_harness import claimed_job
from tests.unit.worker.test_threads import elsewhere

_mark: ContextVar[int] = ContextVar("mark", default=-1)


async def run_all(
    function: Callable[..., Any], count: int, *, cancel: int | None = None
) -> list[Any]:
    """Run a handler for several jobs at once, from another loop, and cancel one of them."""
    caller = asyncio.get_running_loop()
    handler = bind("mail", function)

    async def engine() -> list[Any]:
        runner = CallerLoopRunner(caller)
        runs = [
            asyncio.ensure_future(
                runner.run(handler, Context(claimed_job(number, id=f"job-{number}")), lambda: None)
            )
            for number in range(count)
        ]
        if cancel is not None:
            await asyncio.sleep(0.05)
            runs[cancel].cancel()
        ends = await asyncio.gather(*runs, return_exceptions=True)
        assert not runner._calls
        return ends

    ends: list[Any] = await elsewhere(engine)
    return ends


async def test_handlers_that_do_not_wait_share_tasks_and_see_only_their_own_variables() -> None:
    tasks: list[asyncio.Task[Any]] = []
    names: list[str] = []

    async def work(payload: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        names.append(task.get_name())
        seen = _mark.get()
        _mark.set(payload)
        return seen

    assert await run_all(work, 250) == [-1] * 250
    assert len({id(task) for task in tasks}) < 25
    assert names == [f"job job-{number}" for number in range(250)]
    assert _mark.get() == -1


async def test_handlers_that_wait_keep_their_own_variables() -> None:
    async def work(payload: int) -> int:
        if payload % 3:
            _mark.set(payload)
        await asyncio.sleep(0.001 * (payload % 5))
        try:
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        except TimeoutError:
            return _mark.get()
        return 0

    ends = await run_all(work, 100)
    assert ends == [number if number % 3 else -1 for number in range(100)]


async def test_a_handler_that_waits_does_not_delay_those_after_it() -> None:
    gate = asyncio.Event()
    done: list[int] = []

    async def work(payload: int) -> None:
        if payload % 10 == 0:
            await gate.wait()
        done.append(payload)
        if len(done) == 45:
            gate.set()

    await asyncio.wait_for(run_all(work, 50), 10)
    assert sorted(done) == list(range(50))


async def test_other_tasks_of_the_loop_have_their_turn_between_many_handlers() -> None:
    turns: list[int] = []
    ran = 0

    async def work() -> None:
        nonlocal ran
        ran += 1

    async def beside() -> None:
        while ran < 2000:
            turns.append(ran)
            await asyncio.sleep(0)

    watching = asyncio.create_task(beside())
    await run_all(work, 2000)
    await watching
    steps = [later - sooner for sooner, later in zip(turns, [*turns[1:], 2000], strict=True)]
    assert max(steps) <= 200


async def test_cancelling_one_handler_cancels_no_other() -> None:
    gate = asyncio.Event()

    async def work(payload: int) -> int:
        if payload in (3, 7):
            asyncio.get_running_loop().call_later(0.1, gate.set)
            await gate.wait()
        return payload

    ends = await run_all(work, 20, cancel=3)
    assert isinstance(ends[3], asyncio.CancelledError)
    assert [end for end in ends if isinstance(end, int)] == [n for n in range(20) if n != 3]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_handler_that_cancels_its_own_task_cancels_no_other(*, waits: bool) -> None:
    async def work(payload: int) -> int:
        if waits:
            await asyncio.sleep(0)
        task = asyncio.current_task()
        if payload == 4 and task is not None:
            task.cancel()
        return payload

    ends = await run_all(work, 20)
    assert isinstance(ends[4], asyncio.CancelledError)
    assert [end for end in ends if isinstance(end, int)] == [n for n in range(20) if n != 4]


async def test_a_handler_that_raises_fails_no_other() -> None:
    async def work(payload: int) -> int:
        if payload == 4:
            raise asyncio.CancelledError
        if payload % 5 == 0:
            raise ValueError(payload)
        return payload

    ends = await run_all(work, 20)
    assert isinstance(ends.pop(4), asyncio.CancelledError)
    assert sum(isinstance(end, ValueError) for end in ends) == 4
    assert sum(isinstance(end, int) for end in ends) == 15
