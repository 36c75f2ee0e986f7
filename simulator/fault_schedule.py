"""Fault schedules: which faults a simulated cluster meets, and when.

``everything`` injects all faults at once, so only safety is checked. The other schedules inject one
kind of fault into a cluster that is healthy otherwise, so that more can be checked: that healthy
processes are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, get_args

from bucketq.errors import InvalidRequestError
from bucketq.testing.store_faults import Faults
from simulator.machines import LEADERS, Program
from simulator.simulated_cluster import SimulatedCluster
from simulator.simulated_network import NetworkFaults

FaultSchedule = Literal[
    "everything", "nothing", "restarts", "kills", "freezes", "leader-kills", "slow-storage"
]
FAULT_SCHEDULES: tuple[FaultSchedule, ...] = get_args(FaultSchedule)

FAULTS_END_S = 90.0
"""When the faults end: nine leases, so that jobs can be lost, reclaimed and lost again."""
SLOW_S = (2.0, 8.0)
"""Bounds of the time that a request takes while storage is slow."""
_LONGEST_PAUSE_S = 14.0
"""Shorter than the silence after which direct writers expire leases: workers cannot heartbeat while
their broker is frozen."""
_LEADER_LIFE_S = 8.0
"""Longer than the grace period, and shorter than a lease."""


def set_faults(cluster: SimulatedCluster, faults: FaultSchedule) -> None:
    """Set the fault rates of store and network, and the settings that a schedule needs."""
    rng = cluster.rng
    cluster.has_crashers = faults in ("everything", "kills")
    if faults == "everything":
        cluster.makes_mistakes = True
        store, network = Faults.harsh(), NetworkFaults.harsh()
        cluster.store.set_faults(store.times(rng.choice((1.0, 0.3))))
        network = network.times(rng.choice((1.0, 0.3)))
        # A short retention makes requests arrive after their session was forgotten. It must still
        # be longer than a request can be delayed, so the network reorders nothing then.
        if rng.random() < 0.5:
            cluster.settings["session_retention_s"] = 2.0
            cluster.settings["max_sessions"] = rng.choice((3, 4096))
            network = network.in_order()
        cluster.network.set_faults(network)
    elif faults == "slow-storage":
        cluster.store.latency_s = SLOW_S
        # A heartbeat may take two rounds to be answered.
        cluster.settings.update(lease_s=30.0, grace_s=15.0)


async def run_schedule(cluster: SimulatedCluster, faults: FaultSchedule) -> None:
    """Run a schedule until the faults end."""
    await _SCHEDULES[faults](cluster)


async def _do_everything(cluster: SimulatedCluster) -> None:
    """Kill, freeze and cut off processes, and change clocks."""
    rng = cluster.rng
    while cluster.loop.time() < FAULTS_END_S:
        await asyncio.sleep(rng.uniform(0, 6))
        cluster.judge.follow()
        program = rng.choice(cluster.programs)
        if not program.is_alive:
            cluster.restart(program, takeover=rng.random() < 0.2)
        elif rng.random() < 0.7:
            _fault_process(cluster, program)
        else:
            _cut(cluster, program)


async def _do_nothing(cluster: SimulatedCluster) -> None:
    """Inject no faults into processes."""
    await asyncio.sleep(FAULTS_END_S - cluster.loop.time())


async def _restart(cluster: SimulatedCluster) -> None:
    """Stop programs gracefully and restart them; some brokers take over by force."""
    rng = cluster.rng
    while cluster.loop.time() < FAULTS_END_S:
        await asyncio.sleep(rng.uniform(2, 10))
        cluster.judge.follow()
        program = rng.choice(cluster.programs)
        if program.process is not None and (program.kind in LEADERS or rng.random() < 0.5):
            program.stopped.set()
            await program.process.wait()
        await asyncio.sleep(rng.uniform(0, 3))
        cluster.restart(program, takeover=rng.random() < 0.5)


async def _kill(cluster: SimulatedCluster) -> None:
    """Kill the leader, or another program, and restart it after a while."""
    rng = cluster.rng
    while cluster.loop.time() < FAULTS_END_S - 20:
        await asyncio.sleep(rng.uniform(5, 20))
        cluster.judge.follow()
        leader = cluster.leader()
        program = (
            leader if leader is not None and rng.random() < 0.7 else rng.choice(cluster.programs)
        )
        if program.process is not None:
            program.process.kill()
        cluster.loop.call_in_environment(rng.uniform(5, 15), cluster.restart, program)
    await _do_nothing(cluster)


async def _freeze_leaders(cluster: SimulatedCluster) -> None:
    """Freeze the leader now and then."""
    rng = cluster.rng
    while cluster.loop.time() < FAULTS_END_S - _LONGEST_PAUSE_S:
        await asyncio.sleep(rng.uniform(10, 20))
        cluster.judge.follow()
        leader = cluster.leader()
        if leader is not None and leader.process is not None and not leader.process.frozen:
            cluster.history.excused.add(leader.process.name)
            leader.process.freeze(for_s=rng.choice((rng.uniform(3, 10), _LONGEST_PAUSE_S)))
    await _do_nothing(cluster)


async def _kill_leaders(cluster: SimulatedCluster) -> None:
    """Kill every leader before a lease has passed; one worker is killed too and must be noticed."""
    rng = cluster.rng
    dies_at = rng.uniform(25, 35)
    led_since: dict[str, float] = {}
    while cluster.loop.time() < FAULTS_END_S:
        await asyncio.sleep(0.5)
        leader, now_s = cluster.leader(), cluster.loop.time()
        if leader is not None and leader.process is not None:
            since = led_since.setdefault(leader.process.name, now_s)
            if now_s - since >= _LEADER_LIFE_S:
                leader.process.kill()
                cluster.loop.call_in_environment(1.0, cluster.restart, leader)
        if now_s >= dies_at:
            dies_at = float("inf")
            _kill_a_worker(cluster)


def _kill_a_worker(cluster: SimulatedCluster) -> None:
    state = cluster.state()
    holders = [state.jobs.by_id[job].worker for job in state.running] if state else []
    for program in cluster.programs:
        name = cluster.factory.name_of(program)
        holds = any(holder and holder.startswith(f"{name}/") for holder in holders)
        if holds and program.process is not None:
            program.process.kill()
            return


def _fault_process(cluster: SimulatedCluster, program: Program) -> None:
    """Kill, freeze or stop a process, often the leader, or change its clock."""
    rng = cluster.rng
    if rng.random() < 0.3:
        program = cluster.leader() or program
    process, blow = program.process, rng.random()
    if process is None:
        return
    if blow < 0.35:
        process.kill_after(rng.randint(1, 60))
        if program.kind in LEADERS and rng.random() < 0.5:
            cluster.loop.call_in_environment(rng.uniform(0, 3), _occupy_address, cluster, program)
    elif blow < 0.65:
        cluster.history.excused.add(process.name)
        process.freeze_after(rng.randint(1, 30), for_s=rng.uniform(1, 40))
    elif blow < 0.8:
        program.machine.clock.jump(rng.uniform(-60, 60))
    else:
        program.stopped.set()


def _occupy_address(cluster: SimulatedCluster, program: Program) -> None:
    """Let something else listen at the address of a broker that has died."""
    rng = cluster.rng
    record = cluster.record()
    if program.is_alive or record is None or record.host != program.machine.name:
        return
    if rng.random() < 0.5:
        cluster.start(cluster.add(program.machine, "stranger", listen=record.address))
        return
    try:
        cluster.network.squat(record.address, mute=rng.random() < 0.5)
    except InvalidRequestError:
        return
    cluster.loop.call_in_environment(rng.uniform(5, 30), cluster.network.vacate, record.address)


def _cut(cluster: SimulatedCluster, program: Program) -> None:
    """Cut a machine off from the store or from other machines, in one or both directions."""
    rng, machine = cluster.rng, program.machine
    for_s = rng.uniform(1, 20)
    if rng.random() < 0.4:
        link = rng.choice((None, machine.link, machine.link))
        cluster.store.partition(link, rng.choice(("both", "requests", "answers")))
        cluster.loop.call_in_environment(for_s, cluster.store.heal, link)
        return
    other = rng.choice((None, *(each.name for each in cluster.machines if each is not machine)))
    cluster.network.partition(machine.name, other, rng.choice(("both", "out", "in")))
    cluster.loop.call_in_environment(for_s, cluster.network.heal, machine.name, other)


_SCHEDULES: dict[FaultSchedule, Callable[[SimulatedCluster], Awaitable[None]]] = {
    "everything": _do_everything,
    "nothing": _do_nothing,
    "restarts": _restart,
    "kills": _kill,
    "freezes": _freeze_leaders,
    "leader-kills": _kill_leaders,
    "slow-storage": _do_nothing,
}
