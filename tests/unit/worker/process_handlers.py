"""Handlers that run in separate processes, which import them from here."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from bucketq.errors import InvalidRequestError, JobNotFoundError
from bucketq.worker.context import Context
from bucketq.worker.handler_exceptions import GiveUp, Retry, Snooze

if os.environ.get("BUCKETQ_TEST_BROKEN"):
    raise ImportError("this process is to die before it is ready")


class Picture(Struct):
    """What some of them work on."""

    name: str
    width: int


def who() -> int:
    """Return the id of this process."""
    return os.getpid()


def echo(payload: Any) -> Any:
    return payload


def widen(picture: Picture) -> Picture:
    return Picture(picture.name, 2 * picture.width)


async def widen_soon(picture: Picture, context: Context) -> list[Any]:
    await asyncio.sleep(0)
    return [picture.name, context.attempt]


def die(how: str) -> int:
    """End this process, or not."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        os._exit(7)
    elif how == "sys.exit":
        sys.exit(3)
    return os.getpid()


def refuse(how: str) -> None:
    if how == "retry":
        raise Retry("later", delay_s=90)
    if how == "snooze":
        raise Snooze(60, "not yet")
    if how == "give up":
        raise GiveUp("never")
    raise ValueError(f"bad \udcff {how}")


def push_some(count: int, context: Context) -> list[str]:
    """Push follow-up jobs."""
    return [str(context.push("next", number, id=f"next-{number}")) for number in range(count)]


def use_queue(number: int, context: Context) -> list[Any]:
    """Use the queue of the worker from a process."""
    queue = context.queue_sync
    pushed = [queue.push("other", n) for n in range(number)]
    try:
        queue.wait("no-such-job", timeout_s=5)
    except JobNotFoundError as error:
        said = str(error)
    try:
        queue.push("bad kind", 1)
    except InvalidRequestError:
        pushed.append(queue.push("other", 9, key="k"))
        assert queue.push("other", 9, key="k").duplicate
    return [queue.get(job_id).payload for job_id in pushed] + ["no-such-job" in said]


async def use_queue_soon(number: int, context: Context) -> list[Any]:
    """Do the same, async, many calls at once."""
    queue = context.queue
    pushed = await asyncio.gather(*(queue.push("other", n) for n in range(number)))
    jobs = await asyncio.gather(*map(queue.get, pushed))
    return [job.payload for job in jobs]


def report(path: str, context: Context) -> int:
    """Report often, then wait for a file."""
    for number in range(1000):
        context.progress(number + 1, 1000, "rows")
    return wait_for_file(path)


async def report_soon(path: str, context: Context) -> int:
    """Do the same, async."""
    await context.progress(1)
    return await asyncio.to_thread(wait_for_file, path)


def wait_for_file(path: str) -> int:
    """Wait for a file."""
    while path and not Path(path).exists():
        time.sleep(0.01)
    return os.getpid()


def hang(path: str) -> None:
    """Write the id of this process, and run for long."""
    mark = Path(f"{path}.new")
    mark.write_text(str(os.getpid()))
    mark.rename(path)
    time.sleep(600)


def unsayable() -> object:
    return object()


def note_process(context: Context) -> Iterator[None]:
    """A middleware that notes in which process the handler runs."""
    Path(context.job.payload).write_text(str(os.getpid()))
    yield
