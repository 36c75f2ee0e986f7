"""Which tenants a world has: drawn at random, after one of a few patterns."""

from __future__ import annotations

from typing import Literal, get_args

from simulator.actors import KINDS
from simulator.machines import PORT, Machine, ProgramKind
from simulator.simulated_cluster import SimulatedCluster
from simulator.worker_actors import BEHAVIOURS, CRASHERS

Scenario = Literal["direct", "brokers", "auto", "mixed", "many-clients", "engines", "batches"]
"""The pattern: ``direct`` has nobody but those who write by themselves; ``brokers`` some that serve
and clients of them; ``auto`` clients alone, who bring brokers up; ``mixed`` is everything;
``herd`` many clients of few brokers; ``crew`` one of these, whose workers are engines; and
``batches`` one of these, with users that work in batches."""

SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)

_PLAIN: tuple[Scenario, ...] = ("direct", "brokers", "auto", "mixed", "many-clients")
_ROLES = (("produce", "work"), ("produce", "produce"), ("work", "work"), ("work", "operate"))
_OF_BROKERS: tuple[ProgramKind, ...] = ("remote", "remote", "frugal", "address")
_OF_MANY_CLIENTS: tuple[ProgramKind, ...] = ("remote", "remote", "auto", "auto", "address")
_OF_ALL: tuple[ProgramKind, ...] = (*_OF_BROKERS, "auto", "auto", "spawn", "direct", "group")


def populate(cluster: SimulatedCluster, scenario: Scenario) -> None:
    """Let machines and tenants into an empty world."""
    rng = cluster.rng
    if scenario == "engines":
        populate(cluster, rng.choice(_PLAIN))
        _use_engines(cluster)
        return
    if scenario == "batches":
        populate(cluster, rng.choice(_PLAIN))
        _use_batches(cluster)
        return
    if scenario == "direct":
        for _ in range(rng.randint(3, 6)):
            _add_user(cluster, cluster.add_machine(), rng.choice(("direct", "group")))
        return
    machines = [cluster.add_machine() for _ in range(rng.randint(3, 5))]
    if scenario in ("brokers", "mixed", "many-clients"):
        _add_brokers(cluster, machines[: rng.randint(1, 2 if scenario == "many-clients" else 3)])
    if scenario == "brokers":
        kinds = [rng.choice(_OF_BROKERS) for _ in range(rng.randint(2, 4))]
    elif scenario == "auto":
        kinds = [rng.choice(("auto", "auto", "spawn")) for _ in range(rng.randint(2, 5))]
    elif scenario == "mixed":
        kinds = [rng.choice(_OF_ALL) for _ in range(rng.randint(3, 5))]
    else:
        kinds = [rng.choice(_OF_MANY_CLIENTS) for _ in range(rng.randint(10, 20))]
    for kind in kinds:
        _add_user(cluster, rng.choice(machines), kind, is_one_of_many=scenario == "many-clients")


def _use_engines(cluster: SimulatedCluster) -> None:
    """Let engines take the place of most workers, and of one in any case."""
    rng = cluster.rng
    crashers = tuple(CRASHERS) if cluster.has_crashers else ()
    cluster.kinds = (*KINDS, *BEHAVIOURS, *BEHAVIOURS, "quick", "quick", "slow", *crashers)
    for number, program in enumerate(program for program in cluster.programs if program.roles):
        program.roles = tuple(
            "engine" if role == "work" and (number == 0 or rng.random() < 0.8) else role
            for role in program.roles
        )


def _use_batches(cluster: SimulatedCluster) -> None:
    """Let drivers of consumers and writers take the place of many, and of some in any case."""
    rng = cluster.rng
    others = {"produce": "write", "work": "consume"}
    for number, program in enumerate(program for program in cluster.programs if program.roles):
        program.roles = tuple(
            others.get(role, role) if number < 2 or rng.random() < 0.6 else role
            for role in program.roles
        )


def _add_brokers(cluster: SimulatedCluster, machines: list[Machine]) -> None:
    port = PORT if cluster.rng.random() < 0.7 else 0
    for machine in machines:
        cluster.add(machine, "serve", listen=f"{machine.name}:{port}")


def _add_user(
    cluster: SimulatedCluster, machine: Machine, kind: ProgramKind, *, is_one_of_many: bool = False
) -> None:
    rng = cluster.rng
    is_first = not any(program.roles for program in cluster.programs)
    roles: tuple[str, ...] = rng.choice(_ROLES)
    if is_one_of_many:
        roles = rng.choice((("produce",), ("work",), ("work",)))
    if is_first:
        roles = ("produce", "work", "operate")
    addresses = [program.listen for program in cluster.programs if program.kind == "serve"]
    if kind == "address" and any(place.endswith(":0") for place in addresses):
        kind = "remote"
    cluster.add(
        machine,
        kind,
        timeout_s=rng.choice((5.0, 30.0)),
        roles=roles,
        addresses=tuple(addresses),
    )
