"""Actors that use a simulated queue: producers, workers and operators.

Each is a coroutine that runs until its process ends. Like real programs, actors retry with the same
request if the outcome is unknown (or give up), heartbeat the jobs that they hold, and stop working
on jobs whose lease is lost.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # for the type: streams come from the loop, and so from the seed
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bucketq.errors import RejectedError, UnavailableError
from bucketq.queue.job import Job
from simulator.actors.bulk_actors import BulkPublisher
from simulator.call_log import RecordingQueue

KINDS = ("index", "image", "etl")
REORDERED = 0.0
"""How many of an operator's actions change a priority. A test sets it for worlds of its own: those
that other tests know by their numbers take the same course as ever."""
_TRIES = 4
"""How often an actor that may give up sends a request: then it has met several brokers."""
_LONGEST_AT_THE_END_S = 1.0
"""How long work takes at most once the faults are over, so that simulations end soon."""


@dataclass
class Actor:
    """A user of a queue, with its own stream of random numbers."""

    queue: RecordingQueue
    rng: random.Random
    new_token: Callable[[], str]
    heartbeat_s: float
    faults_ended: Callable[[], bool]
    """Whether the faults are over; from then on actors are quick and reliable."""
    gives_up: bool = False
    """Whether it may give up on a request whose outcome is unknown."""
    skips_heartbeats: bool = False
    """Whether it works on some jobs without heartbeats, beyond the end of their leases."""
    snoozes: float = 0.0
    """How often it puts off a job that it would have completed."""
    kinds: tuple[str, ...] = KINDS
    """The kinds of job to push. Only engines work on kinds that are not in ``KINDS``."""
    most: int = 4
    """How many jobs it pushes at once, at most."""
    publisher: BulkPublisher | None = None
    """Publishes some positions by adoption; None: there are no segments."""

    async def persist(self, ask: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        """Call, and retry with the same request while the outcome is unknown, or give up.

        Returns None if the call was rejected or given up.
        """
        request: str | None = None
        tries = 0
        while True:
            tries += 1
            try:
                return await ask(*args, request=request, **options)
            except UnavailableError as error:
                gives_up = self.gives_up and (tries == _TRIES or self.rng.random() < 0.2)
                if gives_up or error.request is None:
                    return None
                request = error.request
                await asyncio.sleep(self.rng.uniform(0, 2))
            except RejectedError:
                return None


async def produce(actor: Actor, count: int, pause_s: float) -> None:
    """Push jobs with various options."""
    rng, queue = actor.rng, actor.queue
    keys = [f"key-{number}" for number in range(3)]
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        kind, token, sort = rng.choice(actor.kinds), actor.new_token(), rng.random()
        if sort < 0.2:
            most = 40 if kind == "quick" else actor.most
            tokens = [actor.new_token() for _ in range(rng.randint(2, most))]
            await actor.persist(queue.push_many, kind, tokens)
            continue
        options: dict[str, Any] = {"priority": rng.choice((0, 0, 0, 5, -5))}
        if sort < 0.35:
            options["delay_s"] = rng.uniform(0, 10)
        elif sort < 0.6:
            key = rng.choice(keys)
            # A key stands for one content, so all producers push the same payload with it.
            kind, token, options = KINDS[0], f"of {key}", {"key": key}
        await actor.persist(queue.push, kind, token, **options)


async def work(actor: Actor, longest_s: float) -> None:
    """Claim jobs, work on them with heartbeats, and complete, fail or release them."""
    rng, queue = actor.rng, actor.queue
    while True:
        everything = None if actor.kinds == KINDS else KINDS
        kinds = rng.choice((everything, *KINDS))
        limit, wait_s = rng.choice((1, 1, 3)), rng.choice((0.0, 2.0, 10.0))
        jobs = await actor.persist(queue.claim, kinds, limit, wait_s)
        if jobs:
            await _work_on(actor, jobs, longest_s)
        else:
            await asyncio.sleep(rng.uniform(0.1, 1.0))


async def _work_on(actor: Actor, jobs: list[Job[str]], longest_s: float) -> None:
    held = {job.id: job for job in jobs}
    forgets = actor.skips_heartbeats and actor.rng.random() < 0.5 and not actor.faults_ended()
    heartbeat = _forget() if forgets else _beat(actor, held)
    beating = asyncio.get_running_loop().create_task(heartbeat)
    try:
        for job in jobs:
            limit_s = min(longest_s, _LONGEST_AT_THE_END_S) if actor.faults_ended() else longest_s
            await asyncio.sleep(actor.rng.uniform(0, limit_s))
            if job.id in held:
                await _finish(actor, job)
                held.pop(job.id, None)
    finally:
        beating.cancel()


async def _beat(actor: Actor, held: dict[str, Job[str]]) -> None:
    while held:
        await asyncio.sleep(actor.heartbeat_s)
        if not held:
            return
        try:
            pulses = await actor.queue.heartbeat(list(held.values()))
        except UnavailableError:
            continue
        for pulse in pulses:
            if not pulse.held:
                held.pop(pulse.job, None)


async def _forget() -> None:
    """Send no heartbeats."""


async def _finish(actor: Actor, job: Job[str]) -> None:
    end, queue = actor.rng.random(), actor.queue
    if end < actor.snoozes:
        await actor.persist(queue.snooze, job, actor.rng.uniform(0, 3))
    elif end < 0.75:
        await actor.persist(queue.complete, job)
    elif end < 0.9:
        await actor.persist(queue.fail, job)
    else:
        await actor.persist(queue.release, job)


async def operate(actor: Actor, job_ids: Callable[[], list[str]]) -> None:
    """Cancel, reorder, redrive, pause and resume now and then, and read the statistics."""
    rng, queue = actor.rng, actor.queue
    while True:
        await asyncio.sleep(rng.uniform(0, 8))
        if actor.faults_ended():
            continue
        act = rng.random()
        known = job_ids()
        if act < REORDERED and known:
            number = int(
                act * 1_000_000
            )  # Without a draw of its own: other actions stay as they are.
            await actor.persist(queue.set_priority, known[number % len(known)], number % 11 - 5)
        elif act < 0.5:
            await actor.persist(queue.stats)
        elif act < 0.7:
            if known:
                chosen = rng.choice(known)
                await actor.persist(queue.cancel, chosen)
        elif act < 0.85:
            await actor.persist(queue.redrive)
        else:
            kind = rng.choice((None, *KINDS))
            await actor.persist(queue.pause, kind)
            await asyncio.sleep(rng.uniform(0, 3))
            await actor.persist(queue.resume)
