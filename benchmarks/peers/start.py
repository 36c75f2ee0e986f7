"""Programs that push one job: the peer's own command line or, if it has none, a small program.

``python -m benchmarks.peers.start module:Class ADDRESS`` is that small program.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.adapter import KIND
from benchmarks.peers.client import load

if TYPE_CHECKING:
    from benchmarks.peers.servers import Server
    from benchmarks.peers.table import Peer

JSON = '{"text": "' + "x" * 88 + '"}'


def start_command(peer: Peer, python: Path, server: Server) -> list[str]:
    """Return the command line that pushes a job."""
    if peer.is_ours:
        url = Path(server.address).as_uri()
        return [str(python.with_name("bucketq")), "push", "--quiet", url, KIND, JSON]
    if peer.name == "redis":
        redis_cli = shutil.which("redis-cli") or "redis-cli"
        return [redis_cli, "-u", server.address, "rpush", "waiting", JSON]
    if peer.name == "postgres":
        insert = f"insert into jobs (payload) values ('{JSON}')"
        return ["psql", "--quiet", server.address, "--command", insert]
    module = "benchmarks.peers.start"
    return [str(python), "-m", module, peer.adapter, server.address]


async def push_one(adapter: str, address: str) -> None:
    """Connect, push a job, and disconnect."""
    queue = load(adapter, address, connections=1, slow=False)
    await queue.setup(is_first=False)
    await queue.push({"text": "x" * 88})
    await queue.close()


if __name__ == "__main__":
    asyncio.run(push_one(*sys.argv[1:]))
