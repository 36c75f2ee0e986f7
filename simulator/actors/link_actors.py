"""An actor that pushes batches, and jobs that wait for others."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketq.queue.push_options import JobSpec
from simulator.actors.queue_actors import KINDS, Actor

_BATCH_JOBS = 5
"""About how many jobs a batch has: few, so that many batches end within a simulation."""


async def produce_linked(actor: Actor, count: int, pause_s: float) -> None:
    """Push batches of jobs, some of which wait for others.

    Some batches are left open, and the jobs of some are cancelled.
    """
    rng, queue = actor.rng, actor.queue
    for _ in range(1 + count // _BATCH_JOBS):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        batch = actor.new_token()
        on_done = JobSpec(kind=rng.choice(KINDS), payload=actor.new_token())
        if await actor.persist(queue.queue.open_batch, on_done, batch_id=batch) is None:
            continue
        ids: list[str] = []
        for _ in range(rng.randrange(_BATCH_JOBS)):
            options: dict[str, Any] = {"batch_id": batch, "max_attempts": rng.choice((None, 1))}
            if ids and rng.random() < 0.6:
                options["after"] = rng.sample(ids, rng.randint(1, min(2, len(ids))))
                options["on_failed"] = rng.choice((None, None, "run"))
            kind, token = rng.choice(KINDS), actor.new_token()
            if (job_id := await actor.persist(queue.push, kind, token, **options)) is not None:
                ids.append(str(job_id))
            await asyncio.sleep(rng.uniform(0, pause_s))
        if rng.random() < 0.9:
            await actor.persist(queue.queue.close_batch, batch)
        if rng.random() < 0.2:
            await actor.persist(queue.queue.cancel_jobs, batch)
