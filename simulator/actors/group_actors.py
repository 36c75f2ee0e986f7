"""Actors that push jobs of a few groups, and set limits on one of them and on one kind."""

from __future__ import annotations

import asyncio
from typing import Any

from simulator.actors.queue_actors import KINDS, Actor

GROUPS = ("", "a", "b", "c", "limited")
"""Some jobs have no group; the last group has a limit."""
LIMITED_KIND = KINDS[-1]


async def produce_groups(actor: Actor, count: int, pause_s: float) -> None:
    """Push jobs of groups, more of some than of others."""
    rng, queue = actor.rng, actor.queue
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        options: dict[str, Any] = {
            "group": rng.choice((*GROUPS, "a", "a", "a")) or None,
            "priority": rng.choice((0, 0, 0, 1)),
        }
        await actor.persist(queue.push, rng.choice(KINDS), actor.new_token(), **options)


async def set_limits(actor: Actor) -> None:
    """Set limits, and once the faults are over drop their rates.

    A process whose clock is minutes behind starts nothing until it has caught up with a bucket, and
    simulations are to end soon.
    """
    queue = actor.queue
    if not actor.faults_ended():
        await actor.persist(queue.limit, group=GROUPS[-1], running=2, rate=3, period_s=1.0)
        await actor.persist(queue.limit, kind=LIMITED_KIND, running=3, rate=6, period_s=2.0)
    while not actor.faults_ended():  # noqa: ASYNC110 - the actor can only ask
        await asyncio.sleep(1)
    await actor.persist(queue.limit, group=GROUPS[-1], running=2)
    await actor.persist(queue.limit, kind=LIMITED_KIND, running=3)
