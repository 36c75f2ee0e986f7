"""Simulated processes: they are killed, frozen, and end in order."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import sys

import pytest

from bucketq.testing.simulated_process import Process
from bucketq.testing.virtual_loop import (
    DeadlockError,
    VirtualLoop,
    current_loop,
    run,
)


def test_a_kill_runs_no_finally_and_no_except() -> None:
    ran: list[str] = []

    async def victim() -> None:
        async def child() -> None:
            try:
                await asyncio.sleep(5)
            finally:
                ran.append("child's finally")

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(child())
                await asyncio.sleep(1000)
        except asyncio.CancelledError:
            ran.append("except")
        finally:
            ran.append("finally")
            await asyncio.sleep(1)

    async def main(loop: VirtualLoop) -> None:
        process = loop.spawn("victim", victim)
        await asyncio.sleep(1)
        process.kill()
        assert not process.alive
        assert process.killed
        assert await process.wait() is None
        await asyncio.sleep(100)
        gc.collect()

    run(main)
    assert ran == []


def test_dead_processes_are_unwound_silently(caplog: pytest.LogCaptureFixture) -> None:
    unraisable: list[object] = []

    async def stubborn() -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.create_task(asyncio.sleep(7))  # noqa: RUF006
        for _ in range(10):
            try:
                await never
            finally:
                asyncio.create_task(asyncio.sleep(1))  # noqa: RUF006
                await asyncio.sleep(1)

    async def main(loop: VirtualLoop) -> None:
        process = loop.spawn("stubborn", stubborn)
        unstarted = loop.spawn("unstarted", stubborn)
        unstarted.kill()
        await asyncio.sleep(1)
        process.kill()

    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        with caplog.at_level(logging.WARNING, logger="asyncio"):
            run(main)
            VirtualLoop().close()  # the next loop unwinds the dead processes of the last
            gc.collect()
    finally:
        sys.unraisablehook = hook
    assert unraisable == []
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_future_that_completes_for_a_dead_process_runs_nothing() -> None:
    woken: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        future: asyncio.Future[None] = loop.create_future()

        async def waiter() -> None:
            await future
            woken.append(loop.current_process().name)

        dead, living = loop.spawn("dead", waiter), loop.spawn("living", waiter)
        await asyncio.sleep(1)
        dead.kill()
        future.set_result(None)
        await living.wait()

    run(main)
    assert woken == ["living"]


def test_a_kill_can_strike_after_every_single_step() -> None:
    async def main(loop: VirtualLoop, kill_after: int | None) -> tuple[int, list[int], Process]:
        seen: list[int] = []

        async def small() -> None:
            for number in range(5):
                seen.append(number)
                await asyncio.sleep(0 if number % 2 else 1)

        process = loop.spawn("small", small)
        if kill_after is not None:
            process.kill_after(kill_after)
        await process.wait()
        await asyncio.sleep(100)
        return process.steps, seen, process

    total, seen, process = run(lambda loop: main(loop, None))
    assert seen == [0, 1, 2, 3, 4]
    assert not process.killed
    reached = []
    for steps in range(total):
        ran, seen, process = run(lambda loop, steps=steps: main(loop, steps))  # type: ignore[misc]
        assert ran == steps
        assert process.killed
        reached.append(len(seen))
    assert reached == sorted(reached)
    assert set(reached) == {0, 1, 2, 3, 4, 5}


def test_a_frozen_process_does_not_run_while_time_passes() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[str, float]]:
        log: list[tuple[str, float]] = []

        async def ticker() -> None:
            loop.call_later(3.5, lambda: log.append(("timer", loop.time())))
            while True:
                log.append(("tick", loop.time()))
                await asyncio.sleep(1)

        process = loop.spawn("ticker", ticker)
        await asyncio.sleep(2.5)
        process.freeze()
        assert process.alive
        assert process.frozen
        await asyncio.sleep(7.5)
        process.thaw()
        await asyncio.sleep(1.5)
        process.kill()
        return log

    # The sleep due at 3 and the timer due at 3.5 both end at 10, in this order; the sleeper
    # then queues up behind the timer, as it does in any asyncio loop.
    assert run(main) == [
        ("tick", 0.0),
        ("tick", 1.0),
        ("tick", 2.0),
        ("timer", 10.0),
        ("tick", 10.0),
        ("tick", 11.0),
    ]


def test_a_freeze_can_strike_at_a_step_and_end_by_itself() -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        ticks: list[float] = []

        async def ticker() -> None:
            for _ in range(3):
                ticks.append(loop.time())
                await asyncio.sleep(1)

        process = loop.spawn("ticker", ticker)
        process.freeze_after(1, for_s=60)
        await process.wait()
        return ticks

    assert run(main) == [0.0, 60.0, 61.0]


def test_a_frozen_process_can_be_killed() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = loop.spawn("sleeper", lambda: asyncio.sleep(10))
        await asyncio.sleep(1)
        process.freeze(for_s=5)
        process.kill()
        process.thaw()
        await asyncio.sleep(20)
        assert not process.alive
        assert not process.frozen

    run(main)


def test_waiting_for_a_process_gives_what_its_main_coroutine_gave() -> None:
    async def main(loop: VirtualLoop) -> None:
        async def crash() -> None:
            raise ValueError("boom")

        fine = loop.spawn("fine", lambda: asyncio.sleep(1, "result"))
        crashing = loop.spawn("crashing", crash)
        assert await fine.wait() == "result"
        assert await fine.wait() == "result"
        assert fine.error is None
        assert not fine.alive
        with pytest.raises(ValueError, match="boom"):
            await crashing.wait()
        assert isinstance(crashing.error, ValueError)
        assert not crashing.killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VirtualLoop, "call_exception_handler", lambda *_: None)
        run(main)


@pytest.mark.unhandled
def test_a_crash_that_no_task_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: VirtualLoop) -> None:
        async def crash() -> None:
            raise ValueError("boom")

        loop.spawn("unlucky", crash)
        await asyncio.sleep(1)

    run(main)
    assert "simulated process unlucky crashed" in caplog.text


def test_a_process_that_returns_cancels_what_it_left_behind() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        log: list[str] = []

        async def background() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1)
                log.append("cleaned up")

        async def short() -> None:
            task = asyncio.create_task(background())
            await asyncio.sleep(1)
            assert not task.done()

        await loop.spawn("short", short).wait()
        return log

    assert run(main) == ["cleaned up"]


def test_listeners_are_called_when_a_process_ends() -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        ended: list[str] = []
        killed = loop.spawn("killed", lambda: asyncio.sleep(10))
        returned = loop.spawn("returned", lambda: asyncio.sleep(1))
        for process in (killed, returned):
            process.on_end(lambda process: ended.append(process.name))
        killed.kill()
        assert ended == ["killed"]
        await returned.wait()
        return ended

    assert run(main) == ["killed", "returned"]


def test_processes_share_no_context_and_know_their_own() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def main(loop: VirtualLoop) -> None:
        assert current_loop() is loop
        assert loop.current_process() is loop.driver
        variable.set("driver's")

        async def child() -> tuple[str, str]:
            inside = await asyncio.create_task(asyncio.sleep(0, loop.current_process().name))
            return variable.get(), inside

        assert await loop.spawn("child", child).wait() == ("unset", "child")
        assert [process.name for process in loop.processes] == ["driver", "environment", "child"]

    run(main)


def test_a_killed_process_leaves_no_timer_that_moves_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        process = loop.spawn("sleeper", lambda: asyncio.sleep(1000))
        await asyncio.sleep(1)
        process.kill()
        try:
            await asyncio.Event().wait()
        finally:
            raise AssertionError("a deadlock does not unwind")

    with pytest.raises(DeadlockError, match=r"at 1\.0 s"):
        run(main)
