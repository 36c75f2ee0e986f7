"""An actor with many callers, who ask at the same moment: their calls are joined to one request."""

from __future__ import annotations

import asyncio
from typing import Any

from bucketq.queue.job import Job
from simulator.actors.queue_actors import KINDS, Actor

_MOST = 6
"""How many callers there are at most: some claims find no job, and some joined requests fail."""


async def crowd(actor: Actor, count: int, pause_s: float) -> None:
    """Push, claim and complete jobs, many at the same moment, and cancel some claims."""
    rng, queue = actor.rng, actor.queue
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        callers = range(rng.randint(2, _MOST))
        key = rng.choice((None, None, f"key-{rng.randrange(3)}"))
        pushes = [actor.persist(queue.push, rng.choice(KINDS), actor.new_token()) for _ in callers]
        if key is not None:  # Two with the same key are rejected together, and granted one by one.
            keyed: dict[str, Any] = {"key": key}
            pushes += [actor.persist(queue.push, KINDS[0], f"of {key}", **keyed) for _ in "ab"]
        if rng.random() < 0.5:
            kind = rng.choice(KINDS)
            tokens = [[actor.new_token() for _ in range(rng.randint(1, _MOST))] for _ in callers]
            pushes += [actor.persist(queue.push_many, kind, several) for several in tokens]
        await asyncio.gather(*pushes)
        claims = [asyncio.ensure_future(actor.persist(queue.claim, None, 1, 0.0)) for _ in callers]
        if rng.random() < 0.2:
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.1)))
            if not claims[-1].done():
                claims.pop().cancel()
        held: list[Job[str]] = [job for jobs in await asyncio.gather(*claims) for job in jobs or ()]
        await asyncio.sleep(rng.uniform(0, 1))
        await asyncio.gather(*(actor.persist(queue.complete, job) for job in held))
