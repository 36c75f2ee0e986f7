"""``bucketq workers``: list the workers of a queue."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column

_COLUMNS = (
    Column("NAME", flexible=True),
    Column("HOST", drop=2),
    Column("PID", right=True, drop=3),
    Column("VERSION", drop=4),
    Column("RUNNING", right=True),
    Column("SINCE", drop=1),
    Column("HEARTBEAT"),
    Column("STATUS"),
    Column("KINDS", flexible=True),
)


async def run(out: Output, *, url: Url) -> None:
    """List the workers that were heard lately.

    RUNNING is how many jobs a worker holds, of how many that it runs at once. A worker whose STATUS
    is draining claims no more jobs, and ends when it holds none. One that has ended is not listed;
    one that was killed is listed for some minutes (setting worker_retention_s). Without a broker,
    workers write their heartbeats for this list once a minute.

    Examples:
        bucketq workers s3://bucket/jobs/queue.json
        bucketq workers s3://bucket/jobs/queue.json --json | jq 'select(.draining) | .name'
    """
    async with open_queue(url, out.timeout_s) as queue:
        workers = await queue.workers()
    found = [structs.asdict(worker) for worker in workers]
    out.records([*_COLUMNS], found, _cells)


def _cells(row: dict[str, Any]) -> list[object]:
    running = f"{row['running']}/{row['concurrency']}"
    status = "draining" if row["draining"] else "working" if row["running"] else "idle"
    process = (row["name"], row["host"], row["pid"], row["version"], running)
    return [*process, row["since"], row["at"], status, ", ".join(row["kinds"])]
