"""``bucketq batch close``: let no more jobs be added to a batch."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import BatchId, Request, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, batch: BatchId, request: Request = None) -> None:
    """Close a batch, so that it is done when all its jobs have ended.

    Producers close their batches by themselves. Close one whose producer died if all that matters
    was pushed; its callback is pushed then.

    Examples:
        bucketq batch close s3://bucket/jobs/queue.json nightly-2026-01-31
    """
    async with open_queue(url, out.timeout_s) as queue:
        found = await queue.close_batch(batch, request=request)
    left = f", {found.open:,} of {found.jobs:,} jobs are left" if found.status == "closed" else ""
    out.done(f"batch {batch} is {found.status}{left}", {"id": batch, "status": found.status})
