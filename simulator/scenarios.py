"""Which tenants a world has: drawn at random, after one of a few patterns."""

from __future__ import annotations

from typing import Literal, get_args

from simulator.actors import KINDS
from simulator.machines import PORT, Kind, Machine
from simulator.simulated_cluster import World
from simulator.worker_actors import CRASHERS, FATES

Cast = Literal["direct", "brokers", "auto", "mixed", "herd", "crew", "batches"]
"""The pattern: ``direct`` has nobody but those who write by themselves; ``brokers`` some that serve
and clients of them; ``auto`` clients alone, who bring brokers up; ``mixed`` is everything;
``herd`` many clients of few brokers; ``crew`` one of these, whose workers are engines; and
``batches`` one of these, with users that work in batches."""

CASTS: tuple[Cast, ...] = get_args(Cast)

_PLAIN: tuple[Cast, ...] = ("direct", "brokers", "auto", "mixed", "herd")
_ROLES = (("produce", "work"), ("produce", "produce"), ("work", "work"), ("work", "operate"))
_OF_BROKERS: tuple[Kind, ...] = ("remote", "remote", "frugal", "address")
_OF_HERDS: tuple[Kind, ...] = ("remote", "remote", "auto", "auto", "address")
_OF_ALL: tuple[Kind, ...] = (*_OF_BROKERS, "auto", "auto", "spawn", "direct", "group")


def people(world: World, cast: Cast) -> None:
    """Let machines and tenants into an empty world."""
    rng = world.rng
    if cast == "crew":
        people(world, rng.choice(_PLAIN))
        _hire(world)
        return
    if cast == "batches":
        people(world, rng.choice(_PLAIN))
        _engage(world)
        return
    if cast == "direct":
        for _ in range(rng.randint(3, 6)):
            _add_user(world, world.add_machine(), rng.choice(("direct", "group")))
        return
    machines = [world.add_machine() for _ in range(rng.randint(3, 5))]
    if cast in ("brokers", "mixed", "herd"):
        _add_brokers(world, machines[: rng.randint(1, 2 if cast == "herd" else 3)])
    if cast == "brokers":
        kinds = [rng.choice(_OF_BROKERS) for _ in range(rng.randint(2, 4))]
    elif cast == "auto":
        kinds = [rng.choice(("auto", "auto", "spawn")) for _ in range(rng.randint(2, 5))]
    elif cast == "mixed":
        kinds = [rng.choice(_OF_ALL) for _ in range(rng.randint(3, 5))]
    else:
        kinds = [rng.choice(_OF_HERDS) for _ in range(rng.randint(10, 20))]
    for kind in kinds:
        _add_user(world, rng.choice(machines), kind, is_one_of_many=cast == "herd")


def _hire(world: World) -> None:
    """Let engines take the place of most workers, and of one in any case."""
    rng = world.rng
    crashers = tuple(CRASHERS) if world.has_crashers else ()
    world.kinds = (*KINDS, *FATES, *FATES, "quick", "quick", "slow", *crashers)
    for number, tenant in enumerate(tenant for tenant in world.tenants if tenant.roles):
        tenant.roles = tuple(
            "engine" if role == "work" and (number == 0 or rng.random() < 0.8) else role
            for role in tenant.roles
        )


def _engage(world: World) -> None:
    """Let drivers of consumers and writers take the place of many, and of some in any case."""
    rng = world.rng
    others = {"produce": "write", "work": "consume"}
    for number, tenant in enumerate(tenant for tenant in world.tenants if tenant.roles):
        tenant.roles = tuple(
            others.get(role, role) if number < 2 or rng.random() < 0.6 else role
            for role in tenant.roles
        )


def _add_brokers(world: World, machines: list[Machine]) -> None:
    port = PORT if world.rng.random() < 0.7 else 0
    for machine in machines:
        world.add(machine, "serve", listen=f"{machine.name}:{port}")


def _add_user(world: World, machine: Machine, kind: Kind, *, is_one_of_many: bool = False) -> None:
    rng = world.rng
    is_first = not any(tenant.roles for tenant in world.tenants)
    roles: tuple[str, ...] = rng.choice(_ROLES)
    if is_one_of_many:
        roles = rng.choice((("produce",), ("work",), ("work",)))
    if is_first:
        roles = ("produce", "work", "operate")
    addresses = [tenant.listen for tenant in world.tenants if tenant.kind == "serve"]
    if kind == "address" and any(place.endswith(":0") for place in addresses):
        kind = "remote"
    world.add(
        machine,
        kind,
        timeout_s=rng.choice((5.0, 30.0)),
        roles=roles,
        addresses=tuple(addresses),
    )
