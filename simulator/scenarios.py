"""Scenarios: which programs run in a simulated cluster, drawn at random within a pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from simulator.actors.queue_actors import KINDS
from simulator.actors.worker_actors import BEHAVIOURS, CRASHERS
from simulator.machines import PORT, Machine, ProgramKind
from simulator.simulated_cluster import SimulatedCluster

Scenario = Literal[
    "direct",
    "brokers",
    "auto",
    "mixed",
    "many-clients",
    "engines",
    "batches",
    "waits",
    "unique",
    "expiry",
    "schedules",
    "groups",
    "links",
    "follow-ups",
    "payloads",
    "crowds",
]
"""The patterns.

``direct`` has only programs that write the object themselves; ``brokers`` has brokers and their
clients; ``auto`` has clients that start brokers; ``mixed`` has all of these; ``many-clients`` has
many clients of few brokers; ``engines`` is one of these whose workers are real worker engines;
``batches`` is one of these with consumers and writers; ``waits`` is one of these in which many
programs also wait for jobs; and ``unique``, ``expiry`` and ``groups`` are ones in which all also
push unique jobs, jobs that expire soon, or jobs of groups and kinds with limits; in ``schedules``
some keep schedules, too, and in ``links`` all also push batches, and jobs that wait for others; in
``follow-ups`` most workers push jobs with their completions, and put jobs off; in ``crowds`` all
also push, claim and complete many jobs at the same moment.
"""

SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
DRAWN = SCENARIOS[: SCENARIOS.index("waits")]
"""Those that a seed draws. Others are asked for by name, so that seeds stay what they were."""

_PLAIN: tuple[Scenario, ...] = ("direct", "brokers", "auto", "mixed", "many-clients")
_ROLES = (("produce", "work"), ("produce", "produce"), ("work", "work"), ("work", "operate"))
_OF_BROKERS: tuple[ProgramKind, ...] = ("remote", "remote", "frugal", "address")
_OF_MANY_CLIENTS: tuple[ProgramKind, ...] = ("remote", "remote", "auto", "auto", "address")
_OF_ALL: tuple[ProgramKind, ...] = (*_OF_BROKERS, "auto", "auto", "spawn", "direct", "group")


def populate(cluster: SimulatedCluster, scenario: Scenario) -> None:
    """Add the machines and programs of a scenario to an empty cluster."""
    rng = cluster.rng
    if scenario in _CHANGED:
        populate(cluster, rng.choice(_PLAIN))
        _CHANGED[scenario](cluster)
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
    """Replace most workers by engines, and at least one."""
    rng = cluster.rng
    crashers = tuple(CRASHERS) if cluster.has_crashers else ()
    cluster.kinds = (*KINDS, *BEHAVIOURS, *BEHAVIOURS, "quick", "quick", "slow", *crashers)
    for number, program in enumerate(program for program in cluster.programs if program.roles):
        program.roles = tuple(
            "engine" if role == "work" and (number == 0 or rng.random() < 0.8) else role
            for role in program.roles
        )


def _use_batches(cluster: SimulatedCluster) -> None:
    """Replace many producers and workers by writers and consumers, and at least some."""
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


def _use_waits(cluster: SimulatedCluster) -> None:
    """Let every user of the queue wait for jobs, too."""
    for program in cluster.programs:
        if program.roles:
            program.roles = (*program.roles, "wait", "wait")


def _use_unique(cluster: SimulatedCluster) -> None:
    """Let every user of the queue push unique jobs, too."""
    for program in cluster.programs:
        if program.roles:
            program.roles = (*program.roles, "unique")


def _use_expiry(cluster: SimulatedCluster) -> None:
    """Let every user of the queue push jobs that expire, too."""
    for program in cluster.programs:
        if program.roles:
            program.roles = (*program.roles, "expiry")


def _use_payloads(cluster: SimulatedCluster) -> None:
    """Let every user of the queue push large payloads, too."""
    cluster.settings["inline_bytes"] = 2000
    for program in cluster.programs:
        if program.roles:
            program.roles = (*program.roles, "payloads")


def _use_crowds(cluster: SimulatedCluster) -> None:
    """Let every user of the queue have many callers, too."""
    for program in cluster.programs:
        if program.roles:
            program.roles = (*program.roles, "crowd")


def _use_schedules(cluster: SimulatedCluster) -> None:
    """Let two users keep schedules, too; more would change each other's all the time."""
    for program in [each for each in cluster.programs if each.roles][:2]:
        program.roles = (*program.roles, "schedule")


def _use_groups(cluster: SimulatedCluster) -> None:
    """Let every user of the queue push jobs of groups, too, and the first one set limits."""
    users = [program for program in cluster.programs if program.roles]
    for program in users:
        program.roles = (*program.roles, "groups")
    users[0].roles = (*users[0].roles, "limits")


def _use_links(cluster: SimulatedCluster) -> None:
    """Let every user of the queue push batches and jobs that wait for others, too."""
    for program in cluster.programs:
        if program.roles:
            program.roles = (*program.roles, "links")


def _use_follow_ups(cluster: SimulatedCluster) -> None:
    """Let most workers push jobs with their completions, and at least one."""
    rng = cluster.rng
    for number, program in enumerate(program for program in cluster.programs if program.roles):
        program.roles = tuple(
            "follow" if role == "work" and (number == 0 or rng.random() < 0.8) else role
            for role in program.roles
        )


_CHANGED: dict[Scenario, Callable[[SimulatedCluster], None]] = {
    "engines": _use_engines,
    "batches": _use_batches,
    "waits": _use_waits,
    "unique": _use_unique,
    "expiry": _use_expiry,
    "payloads": _use_payloads,
    "crowds": _use_crowds,
    "schedules": _use_schedules,
    "groups": _use_groups,
    "links": _use_links,
    "follow-ups": _use_follow_ups,
}
"""How other scenarios are made of the plain ones."""
