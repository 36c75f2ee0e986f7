"""``bucketq archive flush``: archive finished jobs now."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output, counted


async def run(out: Output, *, url: Url) -> None:
    """Archive all finished jobs now.

    Long-lived processes do this automatically, `archive_after_s` after a job has finished, or up to
    10 s later if nothing else is committed.

    Examples:
        bucketq archive flush file:///srv/jobs/queue.json
    """
    async with open_queue(url, out.timeout_s) as queue:
        count = await queue.flush_archive()
    out.done(f"{counted(count, 'job')} archived", {"archived": count})
