"""An actor that waits for jobs, which others push and work on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from bucketq.errors import RejectedError, UnavailableError
from simulator.actors.queue_actors import Actor


async def wait_for_jobs(actor: Actor, job_ids: Callable[[], list[str]]) -> None:
    """Wait for one job after another, also for ones that are over or archived."""
    rng, queue = actor.rng, actor.queue
    seen: dict[str, None] = {}
    while True:
        await asyncio.sleep(rng.uniform(0, 2))
        seen |= dict.fromkeys(job_ids())
        if seen:
            with suppress(UnavailableError, RejectedError):
                await queue.wait(rng.choice(list(seen)), rng.choice((0.0, 2.0, 20.0)))
