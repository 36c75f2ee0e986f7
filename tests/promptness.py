"""Bounds on real time that hold on a busy machine too.

A busy machine delays a run now and then; a fault delays every run. So one prompt run out of several
shows that the fault is not there. Where virtual time can be used (`bucketq.testing.run`), use that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

TRIES = 8
"""At load 8 on two cores, fewer than one in ten of the runs below takes longer than its bound."""


async def assert_prompt(limit_s: float, run: Callable[[], Awaitable[object]]) -> None:
    """Assert that ``run``, which must be repeatable, can take less than ``limit_s``."""
    loop, took_s = asyncio.get_running_loop(), list[float]()
    while len(took_s) < TRIES:
        began_s = loop.time()
        await run()
        took_s.append(loop.time() - began_s)
        if took_s[-1] < limit_s:
            return
    times = ", ".join(f"{one_s:.2f}" for one_s in took_s)
    message = f"each run took {limit_s:g} s or longer: {times}"
    raise AssertionError(message)
