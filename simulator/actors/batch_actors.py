"""Actors that use numbered batches, as Spark does: drivers of consumers, and writers.

A driver opens a consumer, claims a batch, reads it, works on it with heartbeats, perhaps settles
some of its jobs, and closes it, perhaps with the claim of the next one, which it may have prepared.
After its death the next driver opens the consumer again and finds the batch. Drivers share a few
consumer names, so they fence each other. A writer records a position only after it was
acknowledged, and after a crash publishes again what it may have published already.
"""

from __future__ import annotations

import asyncio

from bucketq.errors import RejectedError, UnavailableError
from bucketq.model.numbered_batches import ConsumerState
from bucketq.queue.job import Job
from simulator.actors.queue_actors import KINDS, Actor

_CONSUMERS = ("spark", "spark", "flink")
_WRITERS = ("sink", "sink", "tap")
SETTLED = 0.0
"""How often a driver settles some jobs of a batch. A test sets it for worlds of its own: those that
other tests know by their numbers take the same course as ever."""
JOINED = 0.0
"""How often a driver acknowledges a batch by the claim of the next one; set as ``SETTLED`` is."""
PREPARED = 0.0
"""How often a driver prepares the next batch while it works on one; set as ``SETTLED`` is."""
_LONGEST_AT_THE_END_S = 1.0
_SLICE = 2
"""Smaller than most batches, so that reading one takes several calls."""


async def consume(actor: Actor, longest_s: float, lease_s: float) -> None:
    """Drive a consumer until another driver fences this one, and open one again later."""
    rng = actor.rng
    while True:
        opened = await actor.persist(actor.queue.open_consumer, rng.choice(_CONSUMERS))
        if opened is not None:
            await _drive(actor, opened, longest_s, rng.choice((None, lease_s, 1.5 * lease_s)))
        await asyncio.sleep(rng.uniform(0.5, 2 if actor.faults_ended() else 20))


async def _drive(
    actor: Actor, opened: ConsumerState, longest_s: float, lease_s: float | None
) -> None:
    rng, queue = actor.rng, actor.queue
    name, epoch = opened.consumer, opened.epoch
    batch = opened.batch if opened.pending else opened.batch + 1
    acked = 0
    while True:
        try:
            found = await queue.claim_batch(name, epoch, batch, rng.randint(1, 5), lease_s, acked)
            acked = 0
            if not found.jobs and not found.lost:
                await asyncio.sleep(rng.uniform(0.1, 2))
                continue
            jobs = await _read(actor, name, batch)
            if PREPARED:
                await _prepare(actor, name, epoch, batch + 1, lease_s)
            await _work_through(actor, jobs, longest_s)
            if SETTLED:
                await _settle(actor, name, batch, jobs)
            if rng.random() < 0.3:
                await queue.claim_batch(name, epoch, batch, rng.randint(1, 5), lease_s)
                await _read(actor, name, batch)
        except UnavailableError:
            await asyncio.sleep(rng.uniform(0, 2))
            continue
        except RejectedError:
            return  # Fenced, or closed by its own request whose answer was lost.
        if JOINED and rng.random() < JOINED:
            acked, batch = batch, batch + 1
            continue
        close = queue.ack_batch if rng.random() < 0.85 else queue.release_batch
        if await actor.persist(close, name, epoch, batch) is None:
            return
        batch += 1


async def _read(actor: Actor, name: str, batch: int) -> list[Job[str]]:
    jobs: list[Job[str]] = []
    start: int | None = 0
    while start is not None:
        page = await actor.queue.read_batch(name, batch, start, _SLICE)
        jobs += page.jobs
        start = page.next_start
    return jobs


async def _prepare(actor: Actor, name: str, epoch: int, batch: int, lease_s: float | None) -> None:
    """Prepare the next batch, and sometimes give it up."""
    rng = actor.rng
    if rng.random() >= PREPARED:
        return
    found = await actor.queue.prepare_batch(name, epoch, batch, rng.randint(1, 5), lease_s)
    if found.jobs and rng.random() < 0.2:
        await actor.persist(actor.queue.release_prepared, name, epoch, batch)


async def _settle(actor: Actor, name: str, batch: int, jobs: list[Job[str]]) -> None:
    """Complete or fail some jobs of a batch; the others are left to its end."""
    rng = actor.rng
    if rng.random() >= SETTLED:
        return
    chosen = [job for job in jobs[1:] if rng.random() < 0.6]  # A batch keeps at least one.
    outcomes = [(job, rng.random() < 0.4) for job in chosen]
    if outcomes:
        await actor.persist(actor.queue.settle_batch, name, batch, outcomes)


async def _work_through(actor: Actor, jobs: list[Job[str]], longest_s: float) -> None:
    limit_s = min(longest_s, _LONGEST_AT_THE_END_S) if actor.faults_ended() else longest_s
    loop = asyncio.get_running_loop()
    until_s = loop.time() + actor.rng.uniform(0, limit_s)
    forgets = actor.skips_heartbeats and actor.rng.random() < 0.5 and not actor.faults_ended()
    while jobs and (left_s := until_s - loop.time()) > 0:
        await asyncio.sleep(min(left_s, actor.heartbeat_s))
        if not forgets:
            await actor.queue.heartbeat(jobs)


async def write(actor: Actor, checkpoints: dict[str, int], count: int, pause_s: float) -> None:
    """Publish batches under a name that other writers use too, for the same content."""
    rng = actor.rng
    writer = rng.choice(_WRITERS)
    for _ in range(count):
        await asyncio.sleep(rng.uniform(0, 2 * pause_s))
        batch = checkpoints.get(writer, 0)
        for part in range(1 + batch % 2):
            tokens = [f"{writer}-{batch}-{part}-{n}" for n in range((batch + part) % 4)]
            kind = KINDS[batch % len(KINDS)]
            position = (writer, batch, part, kind, tokens)
            if actor.publisher is not None and tokens and rng.random() < 0.5:
                is_first = await actor.persist(actor.queue.adopt, actor.publisher, position)
            else:
                is_first = await actor.persist(actor.queue.publish, *position)
            if is_first is None:
                break
        else:
            checkpoints[writer] = max(batch + 1, checkpoints.get(writer, 0))
