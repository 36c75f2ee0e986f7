"""What befalls a simulated world, after one of a few patterns.

``storm`` is everything at once, and nothing but what must hold at any time is asked of it. The
others do one thing each to a world that is well otherwise, so that more can be asked: that the
healthy are left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, get_args

from bucketq.errors import InvalidRequestError
from bucketq.testing.store_faults import Faults
from simulator.machines import LEADERS, Tenant
from simulator.simulated_cluster import World
from simulator.simulated_network import NetworkFaults

Weather = Literal["storm", "calm", "visits", "losses", "pauses", "crashes", "slow"]
WEATHERS: tuple[Weather, ...] = get_args(Weather)

STORM_S = 90.0
SLOW_S = (2.0, 8.0)
"""How long the store takes in slow weather."""
_LONGEST_PAUSE_S = 14.0
"""Not so long that those who write directly find workers silent who could not reach anybody."""
_LEADER_LIFE_S = 8.0
"""Longer than a grace, and shorter than a lease."""


def set_faults(world: World, weather: Weather) -> None:
    """Let links and network be as bad as the weather, before anybody lives there."""
    rng = world.rng
    world.has_crashers = weather in ("storm", "losses")
    if weather == "storm":
        world.is_careless = True
        store, network = Faults.harsh(), NetworkFaults.harsh()
        world.store.set_faults(store.times(rng.choice((1.0, 0.3))))
        network = network.times(rng.choice((1.0, 0.3)))
        # A short memory makes clients meet its end. It must outlast what is under way all the
        # same, so there the network brings messages in time or not at all.
        if rng.random() < 0.5:
            world.settings["session_retention_s"] = 2.0
            world.settings["max_sessions"] = rng.choice((3, 4096))
            network = network.in_order()
        world.network.set_faults(network)
    elif weather == "slow":
        world.store.latency_s = SLOW_S
        # A heartbeat may take two rounds to be answered.
        world.settings.update(lease_s=30.0, grace_s=15.0)


async def play(world: World, weather: Weather) -> None:
    """Let the weather have its way, until the time is over."""
    await _PLAYS[weather](world)


async def _storm(world: World) -> None:
    """Kill, freeze, cut off and mislead everybody."""
    rng = world.rng
    while world.loop.time() < STORM_S:
        await asyncio.sleep(rng.uniform(0, 6))
        tenant = rng.choice(world.tenants)
        if not tenant.is_alive:
            world.restart(tenant, takeover=rng.random() < 0.2)
        elif rng.random() < 0.7:
            _strike(world, tenant)
        else:
            _cut(world, tenant)


async def _calm(world: World) -> None:
    """Do nothing at all."""
    await asyncio.sleep(STORM_S - world.loop.time())


async def _visits(world: World) -> None:
    """Let tenants go and come back in order, and let a broker take over by force."""
    rng = world.rng
    while world.loop.time() < STORM_S:
        await asyncio.sleep(rng.uniform(2, 10))
        tenant = rng.choice(world.tenants)
        if tenant.process is not None and (tenant.kind in LEADERS or rng.random() < 0.5):
            tenant.stopped.set()
            await tenant.process.wait()
        await asyncio.sleep(rng.uniform(0, 3))
        world.restart(tenant, takeover=rng.random() < 0.5)


async def _losses(world: World) -> None:
    """Kill whoever leads, or somebody else, and start them again after a while."""
    rng = world.rng
    while world.loop.time() < STORM_S - 20:
        await asyncio.sleep(rng.uniform(5, 20))
        leader = world.leader()
        tenant = leader if leader is not None and rng.random() < 0.7 else rng.choice(world.tenants)
        if tenant.process is not None:
            tenant.process.kill()
        world.loop.call_in_world(rng.uniform(5, 15), world.restart, tenant)
    await _calm(world)


async def _pauses(world: World) -> None:
    """Let whoever leads stand still now and then."""
    rng = world.rng
    while world.loop.time() < STORM_S - _LONGEST_PAUSE_S:
        await asyncio.sleep(rng.uniform(10, 20))
        leader = world.leader()
        if leader is not None and leader.process is not None and not leader.process.frozen:
            world.history.excused.add(leader.process.name)
            leader.process.freeze(for_s=rng.choice((rng.uniform(3, 10), _LONGEST_PAUSE_S)))
    await _calm(world)


async def _crashes(world: World) -> None:
    """Let no broker live for a lease, while one worker dies and is to be noticed."""
    rng = world.rng
    dies_at = rng.uniform(25, 35)
    led_since: dict[str, float] = {}
    while world.loop.time() < STORM_S:
        await asyncio.sleep(0.5)
        leader, now_s = world.leader(), world.loop.time()
        if leader is not None and leader.process is not None:
            since = led_since.setdefault(leader.process.name, now_s)
            if now_s - since >= _LEADER_LIFE_S:
                leader.process.kill()
                world.loop.call_in_world(1.0, world.restart, leader)
        if now_s >= dies_at:
            dies_at = float("inf")
            _kill_a_worker(world)


def _kill_a_worker(world: World) -> None:
    state = world.state()
    holders = [state.jobs.by_id[job].worker for job in state.running] if state else []
    for tenant in world.tenants:
        name = world.trade.name_of(tenant)
        holds = any(holder and holder.startswith(f"{name}/") for holder in holders)
        if holds and tenant.process is not None:
            tenant.process.kill()
            return


def _strike(world: World, tenant: Tenant) -> None:
    """Do something to a process; more often than not to the one that leads."""
    rng = world.rng
    if rng.random() < 0.3:
        tenant = world.leader() or tenant
    process, blow = tenant.process, rng.random()
    if process is None:
        return
    if blow < 0.35:
        process.kill_after(rng.randint(1, 60))
        if tenant.kind in LEADERS and rng.random() < 0.5:
            world.loop.call_in_world(rng.uniform(0, 3), _squat, world, tenant)
    elif blow < 0.65:
        world.history.excused.add(process.name)
        process.freeze_after(rng.randint(1, 30), for_s=rng.uniform(1, 40))
    elif blow < 0.8:
        tenant.machine.clock.jump(rng.uniform(-60, 60))
    else:
        tenant.stopped.set()


def _squat(world: World, tenant: Tenant) -> None:
    """Let something else listen where a broker has died."""
    rng = world.rng
    record = world.record()
    if tenant.is_alive or record is None or record.host != tenant.machine.name:
        return
    if rng.random() < 0.5:
        world.start(world.add(tenant.machine, "stranger", listen=record.address))
        return
    try:
        world.network.squat(record.address, mute=rng.random() < 0.5)
    except InvalidRequestError:
        return
    world.loop.call_in_world(rng.uniform(5, 30), world.network.vacate, record.address)


def _cut(world: World, tenant: Tenant) -> None:
    """Cut a machine off, from the store or from others, one way or both."""
    rng, machine = world.rng, tenant.machine
    for_s = rng.uniform(1, 20)
    if rng.random() < 0.4:
        whom = rng.choice((None, machine.link, machine.link))
        world.store.partition(whom, rng.choice(("both", "requests", "answers")))
        world.loop.call_in_world(for_s, world.store.heal, whom)
        return
    other = rng.choice((None, *(each.name for each in world.machines if each is not machine)))
    world.network.partition(machine.name, other, rng.choice(("both", "out", "in")))
    world.loop.call_in_world(for_s, world.network.heal, machine.name, other)


_PLAYS: dict[Weather, Callable[[World], Awaitable[None]]] = {
    "storm": _storm,
    "calm": _calm,
    "visits": _visits,
    "losses": _losses,
    "pauses": _pauses,
    "crashes": _crashes,
    "slow": _calm,
}
