"""One seed, one world: machines that use a queue while everything that can go wrong does.

Each machine has a clock that is wrong and processes of the real code: direct queues, group commit,
brokers, and clients that find them, start them or do without (``cast``), over links that lose,
delay and repeat. For a while they are killed, frozen, cut off and restarted, and their clocks jump
(``weather``). Then the faults end, and the queue must come to rest with nothing lost.

``simulate(seed)`` returns a ``Report`` or raises: ``InvariantError`` where a promise was broken, or
whatever a process crashed with.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from unittest import mock

from bucketq.commit.register import Register
from bucketq.errors import UnavailableError
from bucketq.model import state as state_module
from bucketq.queue.direct import DirectQueue
from bucketq.testing.loop import VirtualLoop, run
from bucketq.testing.simulated_clock import SimulatedClock
from simulator.fault_schedule import Weather, play, set_faults
from simulator.invariants import Chain, check
from simulator.liveness import check_fair, check_rest, is_settled
from simulator.scenarios import CASTS, Cast, people
from simulator.simulated_cluster import KEY, World
from simulator.worker_invariants import check_crew, check_crew_fair

_REST_S = 400.0


@dataclass(frozen=True)
class Report:
    """What happened in one world."""

    seed: int
    cast: Cast
    weather: Weather
    fingerprint: int
    steps: int
    virtual_s: float
    commits: int
    jobs: int
    calls: int
    unknown: int
    """How many calls ended with an unknown outcome, or never."""
    lost_leases: int
    archived: int
    """How many jobs left for the archive."""
    repeated: int
    """How many times a crash left one there again."""
    batches: int
    """How many batches consumers claimed."""
    published: int
    """How many positions writers were told that they have published."""
    takeovers: int
    """How many times a broker took over."""
    depositions: int
    """How many times a broker that led found that another does."""
    faults: dict[str, int]
    verdicts: dict[str, int]
    """How often a commit landed, was lost to another, or was too old to tell."""
    shifts: int
    """How many engines worked, one after another or beside each other."""
    runs: dict[str, int]
    """How often a handler of each kind was run."""
    ends: dict[str, int]
    """How often a handler returned, raised, was stopped, or was cut off."""


async def _play(world: World, weather: Weather) -> Chain:
    """Let the weather have its way, let everything come to rest, and judge."""
    for tenant in world.tenants:
        world.start(tenant)
    await play(world, weather)
    calm_s = world.loop.time()
    await _rest(world)
    chain = check(world.history)
    check_crew(world, chain)
    if weather != "storm":
        check_fair(world, chain, weather)
        check_crew_fair(world, chain, weather)
    check_rest(world, chain, calm_s)
    return chain


async def _rest(world: World) -> None:
    """End all faults; whoever is there must bring every job to its end.

    In every second world all are killed first, and fresh ones come up.
    """
    loop = world.loop
    starts_anew = world.rng.random() < 0.5
    calm_s = loop.time()
    world.clear_up(starts_anew=starts_anew)
    clock = SimulatedClock(loop)
    register = Register(world.store.connect("driver"), KEY, "simulated queue", clock)
    async with DirectQueue[str](register, clock) as queue:
        until_s = loop.time() + _REST_S
        while loop.time() < until_s and not is_settled(world, calm_s):
            state = world.state()
            if state is None or state.paused or state.paused_kinds:
                await queue.resume()
            await asyncio.sleep(5)
            world.restart_the_dead()


def simulate(seed: int, *, weather: Weather = "storm", cast: Cast | None = None) -> Report:
    """Play one world and judge it.

    Args:
        seed: What everything random in it comes from.
        weather: What befalls it.
        cast: Who lives in it; drawn from the seed where it is not given.
    """

    async def main(loop: VirtualLoop) -> Report:
        rng = loop.stream("simulation")
        # A short ring makes writers meet its end.
        ring_length = rng.choice((3, 64)) if weather == "storm" else 64
        chosen = rng.choice(CASTS)
        with mock.patch.object(state_module, "RING_LENGTH", ring_length):
            world = World(loop)
            set_faults(world, weather)
            people(world, cast or chosen)
            chain = await _play(world, weather)
        return _report(world, chain, seed, cast or chosen, weather)

    return run(main, seed=seed)


def _report(world: World, chain: Chain, seed: int, cast: Cast, weather: Weather) -> Report:
    loop, calls = world.loop, world.history.calls
    jobs = [records[-1][1] for records in chain.records.values()]
    return Report(
        seed=seed,
        cast=cast,
        weather=weather,
        fingerprint=loop.fingerprint,
        steps=loop.steps,
        virtual_s=loop.time(),
        commits=len(world.store.history(KEY)),
        jobs=len(jobs),
        calls=len(calls),
        unknown=sum(
            call.ended_s is None or isinstance(call.error, UnavailableError) for call in calls
        ),
        lost_leases=sum(job.lost_leases for job in jobs),
        archived=len(chain.archived),
        repeated=sum(len(copies) - 1 for copies in chain.archived.values()),
        batches=len(chain.ledger.sets),
        published=sum(call.verb == "publish" and call.succeeded for call in calls),
        takeovers=len(chain.brokers.takeovers),
        depositions=world.tally.depositions,
        faults=_faults(world.store.injected, world.network.injected),
        verdicts=world.tally.verdicts,
        shifts=len(world.book.shifts),
        runs=Counter(run.kind for run in world.book.runs),
        ends=Counter(run.end or "cut off" for run in world.book.runs),
    )


def _faults(store: dict[str, int], network: dict[str, int]) -> dict[str, int]:
    """Count all faults; those of the network under its name."""
    return {**store, **{f"net_{name}": count for name, count in network.items()}}
