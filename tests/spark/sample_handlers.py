"""Handlers that executors import from here."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

from msgspec import Struct

import bucketq
from bucketq import Context, GiveUp, Retry


class Order(Struct):
    """What some of them work on."""

    number: int
    mark: str = ""


async def double(order: Order) -> int:
    await asyncio.sleep(0)
    return 2 * order.number


def in_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


def in_process() -> int:
    return os.getppid()


def fail(order: Order) -> None:
    message = f"no luck with {order.number}"
    raise ValueError(message)


def give_up() -> None:
    message = "never"
    raise GiveUp(message)


def ask_again(context: Context) -> int:
    if context.attempt == 1:
        message = "not yet"
        raise Retry(message)
    return context.attempt


def unsayable() -> object:
    return object()


def too_large() -> str:
    return "x" * 70_000


async def dawdle() -> None:
    await asyncio.sleep(600)


def leave(order: Order) -> int:
    if order.number == 5:
        os._exit(9)
    return order.number


def lose(mark: str, context: Context) -> str:
    """Release the lease without the worker's knowledge, in the first attempt."""
    if context.attempt == 1:
        with bucketq.connect_sync(mark, mode="direct") as queue:
            queue.release(context.lease)
    return f"attempt {context.attempt}"


def wait_for(order: Order) -> str:
    """Create a file when it begins, and wait for another file before it ends."""
    mark = Path(order.mark)
    mark.with_suffix(".begun").touch()
    while not mark.with_suffix(".go").exists():
        time.sleep(0.05)
    return "waited"


def report(order: Order, context: Context) -> str:
    """Report something, and wait for a file before it ends."""
    context.progress(3, 7, "pages")
    return wait_for(order)


def kill_executor(order: Order) -> int:
    """Kill the JVM of this executor, once, with everything that runs in it."""
    mark = Path(order.mark, "killed")
    if order.number == 7 and not mark.exists():
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text("ascii")
        executor = int(daemon.rpartition(")")[2].split()[1])
        command = Path(f"/proc/{executor}/cmdline").read_bytes()
        assert b"CoarseGrainedExecutorBackend" in command, "this would kill the driver"
        mark.write_text(str(executor), "ascii")
        os.kill(executor, signal.SIGKILL)
    return order.number


def note(path: str, word: str) -> bool:
    """Add a word to a file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{word} ")
    return True


def size_of(payload: bytes, context: Context) -> int:
    """Count a payload, which `open_payload` returns as well."""
    assert b"".join(context.job.open_payload()) == payload
    return len(payload)


def size_of_film(context: Context) -> int:
    return sum(map(len, context.job.open_payload()))
