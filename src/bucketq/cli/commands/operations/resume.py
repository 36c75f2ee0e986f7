"""``bucketq resume``: end a pause."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kind, Request, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, kind: Kind = None, request: Request = None) -> None:
    """Hand out jobs again after a pause.

    With a KIND only that kind; otherwise every pause ends.

    Examples:
        bucketq resume file:///srv/jobs/queue.json
        bucketq resume file:///srv/jobs/queue.json email
    """
    async with open_queue(url, out.timeout_s) as queue:
        await queue.resume(kind, request=request)
    out.done(f"{kind or 'the queue'} is no longer paused", {"resumed": kind or True})
