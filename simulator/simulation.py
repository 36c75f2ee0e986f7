"""Simulate a queue: one seed, one run of real code under faults, checked for invariants.

Machines with wrong clocks run direct queues, group commit, brokers and clients (``scenarios``) over
links that lose, delay and repeat messages. For a while processes are killed, frozen, cut off and
restarted, and clocks jump (``fault_schedule``). Then the faults end, and every job must reach its
end.

``simulate(seed)`` returns a ``SimulationReport``. It raises ``InvariantError`` if a promise was
broken, or the errors that no caller was there to handle: those of callbacks, of background tasks,
and of processes that crashed.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  # it is seeded
from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest import mock

from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.objects.register import Register
from bucketq.errors import BucketQError, UnavailableError
from bucketq.model import state as state_module
from bucketq.queue.queue import Queue
from bucketq.testing.simulated_clock import SimulatedClock
from bucketq.testing.simulated_process import SimulationError
from bucketq.testing.virtual_loop import VirtualLoop, run
from simulator.fault_schedule import FaultSchedule, run_schedule, set_faults
from simulator.invariants.queue_invariants import CommitChain
from simulator.invariants.worker_invariants import check_worker_efficiency, check_worker_safety
from simulator.liveness import check_efficiency, check_liveness, false_takeovers, is_settled
from simulator.scenarios import DRAWN, Scenario, populate
from simulator.simulated_cluster import KEY, SimulatedCluster

# Much longer than any simulation needs after its faults: the invariants say what is late.
_SETTLE_S = 400.0


@dataclass(frozen=True)
class SimulationReport:
    """What happened in one simulation."""

    seed: int
    scenario: Scenario
    faults: FaultSchedule
    fingerprint: int
    steps: int
    virtual_s: float
    commits: int
    jobs: int
    calls: int
    unknown: int
    """How many calls ended with an unknown outcome, or did not return."""
    lost_leases: int
    archived: int
    """How many jobs were archived."""
    repeated: int
    """How many jobs were archived again after a crash."""
    batches: int
    """How many batches consumers claimed."""
    fired: int
    """How many due times of schedules were pushed."""
    follow_ups: int
    """How many jobs were pushed with the completion of another."""
    published: int
    """How many positions of writers were acknowledged."""
    takeovers: int
    """How many times a broker took over."""
    false_takeovers: int
    """How many of them from a broker that had not left or died, and was not frozen."""
    depositions: int
    """How many times a leader found that another broker had taken over."""
    injected: dict[str, int]
    """How many faults of each kind were injected."""
    verdicts: dict[str, int]
    """How many commits landed, lost a race, or were too old to decide."""
    engine_runs: int
    """How many worker engines were started."""
    runs: dict[str, int]
    """How many handlers of each kind were run."""
    ends: dict[str, int]
    """How many handlers returned, raised, were stopped, or were cut off."""
    is_deep: bool
    """Whether the queue spilled, merged and swept all the time."""
    segments: dict[str, int]
    """How many segments were put, introduced, deleted and so on."""
    past: dict[str, int]
    """How many objects of the history were put, deleted and so on."""


async def _run(cluster: SimulatedCluster, faults: FaultSchedule) -> CommitChain:
    """Run the programs through the fault schedule, let them settle, and check the invariants."""
    for program in cluster.programs:
        cluster.start(program)
    try:
        await run_schedule(cluster, faults)
        faults_ended_s = cluster.loop.time()
        await _settle(cluster)
    except BucketQError:
        cluster.judge.finish()  # A promise that was broken explains more than the error.
        raise
    chain = cluster.judge.finish()
    check_worker_safety(cluster, chain)
    if faults != "everything":
        check_efficiency(cluster, chain, faults)
        check_worker_efficiency(cluster, chain, faults)
    check_liveness(cluster, chain, faults_ended_s)
    return chain


async def _settle(cluster: SimulatedCluster) -> None:
    """End all faults, and run until every job has reached its end.

    In every second simulation all processes are killed first and restarted.
    """
    loop = cluster.loop
    restarts_all = cluster.rng.random() < 0.5
    faults_ended_s = loop.time()
    cluster.end_faults(restarts_all=restarts_all)
    clock = SimulatedClock(loop)
    register = Register(cluster.store.connect("driver"), KEY, "simulated queue", clock)
    async with Queue[str](DirectCommitter(register, clock), clock) as queue:
        until_s = loop.time() + _SETTLE_S
        while loop.time() < until_s and not is_settled(cluster, faults_ended_s):
            state = cluster.state()
            if state is None or state.paused or state.paused_kinds:
                await queue.resume()
            for row in () if state is None else state.schedules:
                await queue.unschedule(row.id)  # So that there is an end of jobs.
            await asyncio.sleep(5)
            cluster.judge.follow()
            cluster.restart_dead()


def simulate(
    seed: int,
    *,
    faults: FaultSchedule = "everything",
    scenario: Scenario | None = None,
    deep: bool | None = None,
    remembers: bool | None = None,
) -> SimulationReport:
    """Run one simulation and check it.

    Args:
        seed: The source of everything random.
        faults: The fault schedule.
        scenario: Which programs run; drawn from the seed if it is not given.
        deep: Whether the queue spills, merges and sweeps all the time; drawn if it is not given.
        remembers: Whether a deep queue has a history; drawn if it is not given.
    """
    unhandled: list[Exception] = []

    async def main(loop: VirtualLoop) -> SimulationReport:
        loop.set_exception_handler(lambda _, context: unhandled.append(_error_of(context)))
        rng = loop.stream("simulation")
        # With a short ring of commit ids, writers meet commits that are too old to decide.
        ring_length = rng.choice((3, 64)) if faults == "everything" else 64
        chosen = rng.choice(DRAWN)
        # Not a stream of the loop, so that worlds which are not deep take the same course as ever.
        depth = random.Random(f"{seed}/depth")  # noqa: S311
        is_deep = depth.random() < 0.5
        with mock.patch.object(state_module, "RING_LENGTH", ring_length):
            cluster = SimulatedCluster(loop)
            if is_deep if deep is None else deep:
                cluster.spill_early(depth)
                memory = random.Random(f"{seed}/history")  # noqa: S311
                has_history = memory.random() < 0.5
                if has_history if remembers is None else remembers:
                    cluster.remember(memory)
            set_faults(cluster, faults)
            populate(cluster, scenario or chosen)
            chain = await _run(cluster, faults)
        if unhandled:
            message = f"{len(unhandled)} errors in callbacks and tasks were not handled"
            raise ExceptionGroup(message, unhandled)
        return _report(cluster, chain, seed, scenario or chosen, faults)

    return run(main, seed=seed)


def _error_of(context: dict[str, Any]) -> Exception:
    """Return the error that the loop reports, which no caller gets."""
    error = context.get("exception")
    return error if isinstance(error, Exception) else SimulationError(context["message"])


def _report(
    cluster: SimulatedCluster,
    chain: CommitChain,
    seed: int,
    scenario: Scenario,
    faults: FaultSchedule,
) -> SimulationReport:
    loop, calls = cluster.loop, cluster.history.calls
    jobs = [records[-1][1] for records in chain.records.values()]
    return SimulationReport(
        seed=seed,
        scenario=scenario,
        faults=faults,
        fingerprint=loop.fingerprint,
        steps=loop.steps,
        virtual_s=loop.time(),
        commits=len(cluster.store.history(KEY)),
        jobs=len(jobs),
        calls=len(calls),
        unknown=sum(
            call.ended_s is None or isinstance(call.error, UnavailableError) for call in calls
        ),
        lost_leases=sum(job.lost_leases for job in jobs),
        archived=len(chain.archived),
        repeated=sum(len(copies) - 1 for copies in chain.archived.values()),
        batches=len(chain.consumers.sets),
        fired=len(cluster.judge.schedules.fired),
        follow_ups=cluster.judge.follow_ups.count,
        published=sum(call.verb == "publish" and call.succeeded for call in calls),
        takeovers=len(chain.brokers.takeovers),
        false_takeovers=sum(1 for _ in false_takeovers(cluster, chain)),
        depositions=cluster.counters.depositions,
        injected=_injected(cluster.store.injected, cluster.network.injected),
        verdicts=cluster.counters.verdicts,
        engine_runs=len(cluster.worker_log.engine_runs),
        runs=Counter(run.kind for run in cluster.worker_log.runs),
        ends=Counter(run.end or "cut off" for run in cluster.worker_log.runs),
        is_deep=cluster.is_deep,
        segments=chain.segments,
        past=chain.past,
    )


def _injected(store: dict[str, int], network: dict[str, int]) -> dict[str, int]:
    """Merge the counts of faults; those of the network get a prefix."""
    return {**store, **{f"net_{name}": count for name, count in network.items()}}
