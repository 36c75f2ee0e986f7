"""``bucketq schedule pause``: fire a schedule no more."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, ScheduleName, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, name: ScheduleName, request: Request = None) -> None:
    """Push no more jobs of a schedule, until it is resumed.

    Examples:
        bucketq schedule pause s3://bucket/jobs/queue.json nightly
    """
    async with open_queue(url, out.timeout_s) as queue:
        await queue.pause_schedule(name, request=request)
    out.done(f"schedule {name} is paused", {"name": name, "paused": True})
