"""An actor that pushes unique jobs, many of them with names that are taken."""

from __future__ import annotations

import asyncio
from typing import Any

from simulator.actors.queue_actors import KINDS, Actor

_NAMES = 3
"""So few that most pushes find their name taken."""


async def produce_unique(actor: Actor, count: int, pause_s: float) -> None:
    """Push unique jobs of both scopes, some of which replace what is there."""
    rng, queue = actor.rng, actor.queue
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        scope = rng.choice(("queued", "queued+running"))
        options: dict[str, Any] = {
            "unique": f"{scope} {rng.randrange(_NAMES)}",
            "unique_scope": scope,
            "replace": rng.choice((None, None, "payload", "run_at", "both")),
            "delay_s": rng.choice((None, None, 1.0, 5.0)),
        }
        kind, token = rng.choice(KINDS[:2]), actor.new_token()
        await actor.persist(queue.push_unique, kind, token, **options)
