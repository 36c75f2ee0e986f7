"""``bucketq schedule rm``: remove a schedule."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, ScheduleName, Url
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, name: ScheduleName, request: Request = None) -> int:
    """Remove a schedule. Jobs that it pushed stay.

    Examples:
        bucketq schedule rm s3://bucket/jobs/queue.json nightly
    """
    async with open_queue(url, out.timeout_s) as queue:
        was_there = await queue.unschedule(name, request=request)
    if was_there or out.json:
        out.done(f"schedule {name} is removed", {"name": name, "removed": was_there})
    if was_there:
        return exit_codes.OK
    out.note(f"there is no schedule {name}")
    return exit_codes.NOTHING
