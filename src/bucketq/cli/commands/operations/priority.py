"""``bucketq priority``: change the priority of a job."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Request, Url, argument
from bucketq.cli.terminal.output import Output


async def run(
    out: Output,
    *,
    url: Url,
    job: JobId,
    priority: Annotated[int, argument("PRIORITY", "The smaller number goes first.")],
    request: Request = None,
) -> None:
    """Change the priority of a job that waits.

    The smaller number goes first, and a job without a priority has 0. The job may be delayed, or
    wait for other jobs; one that is running or over is refused. Among the jobs of its new priority
    it keeps its place: the one that was pushed first goes first.

    Examples:
        bucketq priority file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K 5
        bucketq priority file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K -10
    """
    async with open_queue(url, out.timeout_s) as queue:
        await queue.set_priority(job, priority, request=request)
    out.done(f"{job} has priority {priority}", {"id": job, "priority": priority})
