"""What the workers of a run do with jobs: handlers of every sort, and how their jobs must end.

Each writes down when it began, under which lease, and with which result it ended. A result names
its attempt, so that afterwards a result can be told from that of another attempt. How long a
handler takes is drawn from the job, so that no two seeds of a run are alike.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bucketq import Context, GiveUp, Retry, Worker
from tests.chaos.diary import Diary

DIARY_VARIABLE = "BUCKETQ_TEST_DIARY"
"""Where a worker's diary is; the processes in which it runs handlers have it from there."""


@functools.cache
def diary() -> Diary:
    return Diary(Path(os.environ[DIARY_VARIABLE]))


def _begin(context: Context) -> None:
    job = context.job
    facts = {"job": job.id, "attempt": job.attempt, "lease": context.lease.lease}
    diary().note("begun", kind=job.kind, pid=os.getpid(), **facts)


def _end(context: Context) -> str:
    job = context.job
    result = f"{diary().name}/{job.id}/{job.attempt}"
    diary().note("ran", job=job.id, attempt=job.attempt, result=result)
    return result


def _draw_s(token: str, least_s: float, most_s: float) -> float:
    return random.Random(token).uniform(least_s, most_s)


async def nap(token: str, context: Context) -> str:
    """Wait for something for a moment."""
    _begin(context)
    await asyncio.sleep(_draw_s(token, 0.0, 0.3))
    return _end(context)


async def wait(token: str, context: Context) -> str:
    """Wait for longer than a lease, now and then."""
    _begin(context)
    await asyncio.sleep(_draw_s(token, 1.0, 7.0))
    return _end(context)


async def stall(token: str, context: Context) -> str:
    """Hold up the event loop on which others wait."""
    _begin(context)
    time.sleep(_draw_s(token, 0.0, 1.0))  # noqa: ASYNC251 - that is what it is for
    return _end(context)


def think(token: str, context: Context) -> str:
    """Keep a thread busy."""
    _begin(context)
    time.sleep(_draw_s(token, 0.0, 0.2))
    return _end(context)


def grind(token: str, context: Context) -> str:
    """Need a core for a moment, in a process."""
    _begin(context)
    digest = hashlib.pbkdf2_hmac("sha256", token.encode(), b"", 20_000)
    assert digest
    return _end(context)


async def stumble(token: str, context: Context) -> str:
    """Fail the first time, in one way or another."""
    _begin(context)
    if context.attempt == 1:
        if _draw_s(token, 0.0, 1.0) < 0.5:
            raise Retry("not yet", delay_s=0.2)
        raise ValueError("the first time it does not work")
    return _end(context)


def crash(context: Context) -> str:
    """Take a process along the first time."""
    _begin(context)
    if context.attempt == 1:
        os._exit(7)
    return _end(context)


async def dawdle(context: Context) -> str:
    """Take too long the first time."""
    _begin(context)
    await asyncio.sleep(30.0 if context.attempt == 1 else 0.0)
    return _end(context)


def fail(context: Context) -> None:
    """Fail each time."""
    _begin(context)
    raise ValueError("it never works")


def drowse(context: Context) -> None:
    """Take too long each time, in a thread, which can only be asked to stop."""
    _begin(context)
    for _ in range(30):
        time.sleep(0.1)
        context.raise_if_cancelled()


def hang(context: Context) -> None:
    """Take too long each time, in a process, which is ended for it."""
    _begin(context)
    time.sleep(30.0)


async def give_up(context: Context) -> None:
    """See no sense in it."""
    _begin(context)
    raise GiveUp("this cannot be done")


async def misread(number: int, context: Context) -> None:
    """Want what is never pushed."""
    _begin(context)
    raise AssertionError(number)


@dataclass(frozen=True)
class Kind:
    """A kind of job."""

    handler: Callable[..., Any]
    share: float
    """Of a hundred jobs, about so many. Those for which a process has to be started are rare."""
    outcome: Literal["completed", "dead"] = "completed"
    limit: int = 0
    """How many failures and lost leases end it; 0: as many as it takes."""
    timeout_s: float | None = None
    is_process: bool = False
    is_job_limit: bool = False
    """Whether the job itself says how often it may fail, and not the handler."""


KINDS = {
    "nap": Kind(nap, 40),
    "think": Kind(think, 24),
    "grind": Kind(grind, 7, is_process=True),
    "stumble": Kind(stumble, 9),
    "wait": Kind(wait, 6),
    "stall": Kind(stall, 1),
    "crash": Kind(crash, 0.5, is_process=True),
    "dawdle": Kind(dawdle, 2, timeout_s=0.7),
    "fail": Kind(fail, 4, "dead", limit=3),
    "fail-by-itself": Kind(fail, 2, "dead", limit=2, is_job_limit=True),
    "drowse": Kind(drowse, 1, "dead", limit=2, timeout_s=0.5),
    "hang": Kind(hang, 0.5, "dead", limit=2, timeout_s=1.0, is_process=True),
    "give-up": Kind(give_up, 2, "dead"),
    "misread": Kind(misread, 1, "dead"),
}


def register(worker: Worker, *, with_processes: bool) -> None:
    """Give a worker its handlers; not every worker has some that run in processes."""
    for name, kind in KINDS.items():
        if kind.is_process and not with_processes:
            continue
        worker.handler(
            name,
            timeout_s=kind.timeout_s,
            max_attempts=None if kind.is_job_limit else kind.limit or None,
            run_in="process" if kind.is_process else None,
        )(kind.handler)
