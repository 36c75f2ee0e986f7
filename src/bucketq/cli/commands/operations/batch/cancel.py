"""``bucketq batch cancel``: end a batch without its callback."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import BatchId, Request, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, batch: BatchId, request: Request = None) -> None:
    """End a batch without its callback. Its jobs stay as they are (`bucketq cancel --batch-id`).

    Examples:
        bucketq batch cancel s3://bucket/jobs/queue.json nightly-2026-01-31
    """
    async with open_queue(url, out.timeout_s) as queue:
        found = await queue.cancel_batch(batch, request=request)
    out.done(f"batch {batch} is {found.status}", {"id": batch, "status": found.status})
