"""``bucketq pause``: stop handing out jobs."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kind, Request, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, kind: Kind = None, request: Request = None) -> None:
    """Stop handing out jobs, of one kind or of all. Running jobs continue.

    Examples:
        bucketq pause file:///srv/jobs/queue.json
        bucketq pause file:///srv/jobs/queue.json email
    """
    async with open_queue(url, out.timeout_s) as queue:
        await queue.pause(kind, request=request)
    out.done(f"{kind or 'the queue'} is paused", {"paused": kind or True})
