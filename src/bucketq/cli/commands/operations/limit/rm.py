"""``bucketq limit rm``: remove a limit."""

from __future__ import annotations

from bucketq.cli.commands.operations.limit.set import parse_target
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import LimitTarget, Request, Url
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, target: LimitTarget, request: Request = None) -> int:
    """Remove the limit of a kind or a group.

    Examples:
        bucketq limit rm s3://bucket/jobs/queue.json kind=email
        bucketq limit rm s3://bucket/jobs/queue.json 'group=*'
    """
    whom = parse_target(target)
    async with open_queue(url, out.timeout_s) as queue:
        was_there = await queue.unlimit(request=request, **whom)
    if was_there or out.json:
        out.done(f"limit {target} is removed", {"target": target, "removed": was_there})
    if was_there:
        return exit_codes.OK
    out.note(f"there is no limit {target}")
    return exit_codes.NOTHING
