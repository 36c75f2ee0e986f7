"""An actor whose jobs push others when they are completed, and are put off now and then."""

from __future__ import annotations

from simulator.actors.queue_actors import Actor, work

_SNOOZES = 0.1
"""How often it puts a job off; few enough that jobs are finished in the end."""


async def follow(actor: Actor, longest_s: float) -> None:
    """Work as others do, and push follow-up jobs with each completion."""
    actor.queue.begin_to_push()
    actor.snoozes = _SNOOZES
    await work(actor, longest_s)
