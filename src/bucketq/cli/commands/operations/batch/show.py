"""``bucketq batch show``: show one batch."""

from __future__ import annotations

from msgspec import structs, to_builtins

from bucketq.cli.batch_table import print_batch
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import BatchId, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, batch: BatchId) -> None:
    """Show one batch: its counts, and what is pushed at its end.

    Examples:
        bucketq batch show s3://bucket/jobs/queue.json nightly-2026-01-31
        bucketq batch show s3://bucket/jobs/queue.json nightly-2026-01-31 --json | jq .dead
    """
    async with open_queue(url, out.timeout_s) as queue:
        found = await queue.get_batch(batch)
    if out.json:
        out.value(to_builtins(structs.asdict(found)) | {"failed": found.failed, "left": found.open})
    else:
        print_batch(out, found)
