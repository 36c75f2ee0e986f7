"""Calls from a thread to the event loop of another: what they return, raise and leave behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextvars import ContextVar
from typing import Any

import pytest

from bucketq.client.loop_thread import LoopThread
from bucketq.loop_calls import call_on
from tests.environ import child_environ

INTERRUPTED = """
import asyncio, faulthandler, random, signal, time
from bucketq.client.loop_thread import LoopThread

faulthandler.dump_traceback_later(30, exit=True)


class Interrupt(BaseException):
    pass


def interrupt(*_):
    raise Interrupt


async def call():
    await asyncio.sleep(0)
    return "answer"


async def wait():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ends.append("cancelled")
        raise


ends = []
thread, chance, interrupts = LoopThread(), random.Random(7), 0
signal.signal(signal.SIGALRM, interrupt)
until = time.monotonic() + 3
while time.monotonic() < until or interrupts < 5000:
    try:
        signal.setitimer(signal.ITIMER_REAL, 2e-5 + chance.random() * 2e-4)
        for _ in range(100):
            thread.call(call)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        interrupts += 1
try:
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    thread.call(wait)
except Interrupt:
    print(thread.call(call), *ends)
thread.stop()
"""
"""Interrupts calls at any step of theirs, as Ctrl-C does."""

NAME = ContextVar("NAME", default="")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    thread = LoopThread()
    yield thread.loop
    thread.stop()


def test_interrupts_at_any_moment_cancel_the_call_and_do_not_stop_the_loop() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "answer cancelled\n"), ended.stderr[-2000:]


def test_a_call_returns_what_the_coroutine_returns(loop: asyncio.AbstractEventLoop) -> None:
    async def add(one: int, *, more: int) -> tuple[int, str, object]:
        return one + more, NAME.get(), asyncio.get_running_loop()

    NAME.set("of the caller")
    assert call_on(loop, add, 1, more=2) == (3, "of the caller", loop)


def test_a_call_raises_what_the_coroutine_raises_and_keeps_no_cycle(
    loop: asyncio.AbstractEventLoop,
) -> None:
    class WrongError(Exception):
        pass

    async def fail() -> None:
        raise WrongError

    def kept() -> weakref.ref[WrongError]:
        try:
            call_on(loop, fail)
        except WrongError as error:
            return weakref.ref(error)
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        assert kept()() is None
    finally:
        gc.enable()


def test_arguments_that_do_not_fit_are_an_error_of_the_call(
    loop: asyncio.AbstractEventLoop,
) -> None:
    sleep: Any = asyncio.sleep
    with pytest.raises(TypeError, match="delay"):
        call_on(loop, sleep)


def test_a_call_that_is_cancelled_on_the_loop_says_so(loop: asyncio.AbstractEventLoop) -> None:
    async def give_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    with pytest.raises(CancelledError):
        call_on(loop, give_up)
