"""``bucketq schedule run``: push the job of a schedule now."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, ScheduleName, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, name: ScheduleName, request: Request = None) -> None:
    """Push the job of a schedule now and print its id, paused or not.

    Due times stay as they are.

    Examples:
        bucketq schedule run s3://bucket/jobs/queue.json nightly
    """
    async with open_queue(url, out.timeout_s) as queue:
        pushed = await queue.run_schedule(name, request=request)
    out.result(pushed, {"id": pushed})
