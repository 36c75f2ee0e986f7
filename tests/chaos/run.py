"""One run, from the first process to the verdict."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.fleet import fleet
from tests.chaos.places import on_a_file, on_a_server
from tests.chaos.verdict import Verdict, judge
from tests.chaos.world import BROKERS, World
from tests.servers.server import Server


async def run(folder: Path, server: Server | None, seed: int, duration_s: float) -> Verdict:
    """Let faults rage for a while, on a file or on a server."""
    where = on_a_server(server, BROKERS, seed) if server else on_a_file(folder, BROKERS)
    with where as place:
        with fleet(folder) as processes:
            world = World(processes, place, seed)
            await world.live(duration_s)
        return await judge(processes, place.url, world.events)
