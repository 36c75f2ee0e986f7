"""One run, from the first process to the verdict."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.chaos.casts import Cast
from tests.chaos.fleet import fleet
from tests.chaos.places import on_a_file, on_a_server
from tests.chaos.verdict import Verdict, judge
from tests.chaos.ways import BrokerWay
from tests.chaos.world import BROKERS, World
from tests.servers.server import Server

_SPILL_BYTES = 1000
"""A few jobs: every process that commits spills and merges all the time."""


async def run(
    folder: Path,
    server: Server | None,
    seed: int,
    duration_s: float,
    cast: Cast,
    *,
    deep: bool | None = None,
) -> Verdict:
    """Let faults rage for a while, on a file or on a server.

    If the queue is deep, most of its jobs are in segments; that of every second plan is, unless
    ``deep`` is given.
    """
    if seed % 2 if deep is None else deep:
        cast = replace(cast, settings=cast.settings | {"spill_bytes": _SPILL_BYTES})
    where = on_a_server(server, BROKERS, seed) if server else on_a_file(folder, BROKERS)
    with ExitStack() as stack:
        place = stack.enter_context(where)
        ways = [
            stack.enter_context(BrokerWay(f"{seed}/broker way/{slot}"))
            for slot in range(BROKERS if cast.has_ways else 0)
        ]
        with fleet(folder) as processes:
            world = World(processes, place, seed, cast, ways)
            await world.live(duration_s)
        return await judge(processes, place.url, cast, world.events)
