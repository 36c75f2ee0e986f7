"""``bucketq release``: return a job to the queue."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Lease, Request, Url, option
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output
from bucketq.model.operations import LeaseRef
from bucketq.model.records import Status


async def run(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    delay: Annotated[
        str, option("--delay DURATION", "Do not hand it out again before, like 5m.")
    ] = "0",
    snooze: Annotated[
        bool, option("--snooze", "Count it: the 101st time it is a failure.")
    ] = False,
    request: Request = None,
) -> None:
    """Return a job to the queue without using up an attempt.

    A job that waits for something outside the queue should not do so for ever: with --snooze the
    queue counts how often it was put off, and from the 101st time on that is a failure.

    Examples:
        bucketq release file:///srv/jobs/queue.json JOB LEASE
        bucketq release file:///srv/jobs/queue.json JOB LEASE --delay 5m --snooze
    """
    out.after_interrupt = "running it again is safe: it is rejected if it has taken effect"
    held, delay_s = LeaseRef(job, lease), parse_duration(delay, "--delay")
    status: Status = "queued"
    async with open_queue(url, out.timeout_s) as queue:
        if snooze:
            status = await queue.snooze(held, delay_s, request=request)
        else:
            await queue.release(held, delay_s=delay_s, request=request)
    what = "released" if status == "queued" else status
    out.done(f"{job} is {what}", {"id": job, "status": status})
