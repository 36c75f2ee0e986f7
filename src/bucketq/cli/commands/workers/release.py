"""``bucketq release``: return a job to the queue."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Lease, Request, Url, option
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output
from bucketq.model.operations import LeaseRef


async def run(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    delay: Annotated[
        str, option("--delay DURATION", "Do not hand it out again before, like 5m.")
    ] = "0",
    request: Request = None,
) -> None:
    """Return a job to the queue without using up an attempt.

    Examples:
        bucketq release file:///srv/jobs/queue.json JOB LEASE
        bucketq release file:///srv/jobs/queue.json JOB LEASE --delay 5m
    """
    out.after_interrupt = "running it again is safe: it is rejected if it has taken effect"
    async with open_queue(url, out.timeout_s) as queue:
        await queue.release(
            LeaseRef(job, lease), delay_s=parse_duration(delay, "--delay"), request=request
        )
    out.done(f"{job} is released", {"id": job, "status": "queued"})
