"""An actor that pushes large payloads, which are side objects."""

from __future__ import annotations

import asyncio

from simulator.actors.queue_actors import KINDS, Actor

_LARGE = 3000
"""More than what is surely part of a job, and than the setting of these worlds."""


async def produce_large(actor: Actor, count: int, pause_s: float) -> None:
    """Push jobs with large payloads."""
    rng = actor.rng
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        token = actor.new_token().ljust(_LARGE, ".")
        await actor.persist(actor.queue.push, rng.choice(KINDS[:2]), token)
