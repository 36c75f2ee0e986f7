"""``bucketq schedule resume``: fire a schedule again."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, ScheduleName, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, name: ScheduleName, request: Request = None) -> None:
    """Push jobs of a schedule again after a pause.

    What was due during the pause never runs.

    Examples:
        bucketq schedule resume s3://bucket/jobs/queue.json nightly
    """
    async with open_queue(url, out.timeout_s) as queue:
        await queue.resume_schedule(name, request=request)
    out.done(f"schedule {name} is resumed", {"name": name, "paused": False})
