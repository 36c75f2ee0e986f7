"""An actor that sets, changes, pauses and removes schedules, which brokers and others then fire."""

from __future__ import annotations

import asyncio

from simulator.actors.queue_actors import KINDS, Actor
from simulator.call_log import SCHEDULED

_NAMES = ("tick", "tock", "tack")


async def keep_schedules(actor: Actor) -> None:
    """Change schedules until the faults are over."""
    rng, queue = actor.rng, actor.queue.queue
    while not actor.faults_ended():
        name, act = rng.choice(_NAMES), rng.random()
        if act < 0.6:
            await actor.persist(
                queue.schedule,
                name,
                rng.choice(KINDS),
                f"{SCHEDULED}{name}",
                every_s=rng.choice((3.0, 5.0, 5.0)),
                missed=rng.choice(("all", "all", "latest", "skip")),
                alone=rng.random() < 0.2,
            )
        elif act < 0.75:
            await actor.persist(queue.pause_schedule, name)
        elif act < 0.9:
            await actor.persist(queue.resume_schedule, name)
        else:
            await actor.persist(queue.unschedule, name)
        await asyncio.sleep(rng.uniform(0, 15))
