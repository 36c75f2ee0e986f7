"""``bucketq queues``: list the queues under a folder."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import argument
from bucketq.cli.parsing import check_timeout
from bucketq.cli.terminal.output import Output, counted, duration
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import BucketQError
from bucketq.store.queue_search import FoundQueue, QueueFolder

_COLUMNS = (
    Column("QUEUE"),
    Column("QUEUED", right=True),
    Column("RUNNING", right=True),
    Column("DEAD", right=True),
    Column("OLDEST", right=True, drop=1),
    Column("BROKER", drop=2),
)
_AT_ONCE = 8
"""How many queues are read at the same time: enough to hide the latency of a store."""

FolderUrl = Annotated[
    str, argument("URL", "Address of a folder, like file:///srv/jobs/ or s3://bucket/jobs/.")
]


async def run(out: Output, url: FolderUrl) -> None:
    """List the queues under a folder, with their depth, age and broker.

    Every queue is asked as `bucketq stats` would. One that cannot be read is reported, and the
    others are listed.

    Examples:
        bucketq queues s3://bucket/jobs/
        bucketq queues file:///srv/jobs/ --json | jq -r 'select(.dead > 0) | .url'
    """
    check_timeout(out.timeout_s)
    folder = QueueFolder(url)
    try:
        found = await folder.find()
    finally:
        await folder.close()
    limit = asyncio.Semaphore(_AT_ONCE)
    rows = await asyncio.gather(*(_row(queue, limit, out) for queue in found))
    failed = [row for row in rows if "error" in row]
    if out.json:
        for row in rows:
            out.value(row)
    else:
        out.table(_COLUMNS, [_cells(row) for row in rows if "error" not in row])
        for row in failed:
            out.note(f"{row['queue']}: {row['error']}")
        if not found:
            out.note(f"no queue under {url}")
    if failed:
        raise BucketQError(f"{counted(len(failed), 'queue')} under {url} could not be read")


async def _row(queue: FoundQueue, limit: asyncio.Semaphore, out: Output) -> dict[str, Any]:
    row: dict[str, Any] = {"queue": queue.name, "url": queue.url}
    try:
        async with limit, open_queue(queue.url, out.timeout_s) as opened:
            found = await opened.stats()
    except BucketQError as error:
        return row | {"error": str(error)}
    row |= {status: found.total(status) for status in ("queued", "running", "dead")}
    row["oldest_queued_s"] = found.oldest_queued_s
    row["paused"] = found.paused
    row["broker"] = found.broker.address if found.broker else ""
    return row


def _cells(row: dict[str, Any]) -> list[object]:
    oldest = row["oldest_queued_s"]
    return [
        row["queue"] + ("  (paused)" if row["paused"] else ""),
        *(row["queued"], row["running"], row["dead"]),
        "" if oldest is None else duration(max(0.0, oldest)),
        row["broker"] or "none",
    ]
