"""An actor that pushes jobs that expire soon, so that some are claimed in time and others not."""

from __future__ import annotations

import asyncio

from simulator.actors.queue_actors import KINDS, Actor


async def produce_expiring(actor: Actor, count: int, pause_s: float) -> None:
    """Push jobs that expire, some of them delayed."""
    rng = actor.rng
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        delay_s = rng.choice((None, None, 0.5))
        expires_in_s = rng.choice((0.6, 1.0, 3.0, 10.0))
        kind, token = rng.choice(KINDS[:2]), actor.new_token()
        await actor.persist(
            actor.queue.push, kind, token, delay_s=delay_s, expires_in_s=expires_in_s
        )
