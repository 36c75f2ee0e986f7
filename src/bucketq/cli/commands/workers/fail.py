"""``bucketq fail``: report a failed attempt."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Lease, Request, Url, option
from bucketq.cli.terminal.output import Output
from bucketq.model.operations import LeaseRef


async def run(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    error: Annotated[str, option("--error -e", "What went wrong.")] = "failed",
    no_retry: Annotated[bool, option("--no-retry", "Do not retry; the job becomes dead.")] = False,
    request: Request = None,
) -> None:
    """Report a failed attempt; the job is retried or becomes dead.

    Examples:
        bucketq fail file:///srv/jobs/queue.json JOB LEASE --error 'no such address'
        bucketq fail file:///srv/jobs/queue.json JOB LEASE --no-retry
    """
    out.after_interrupt = "running it again is safe: it is rejected if it has taken effect"
    async with open_queue(url, out.timeout_s) as queue:
        status = await queue.fail(LeaseRef(job, lease), error, retry=not no_retry, request=request)
    out.done(f"{job} is {status}", {"id": job, "status": status})
