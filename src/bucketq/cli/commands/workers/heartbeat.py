"""``bucketq heartbeat``: renew a lease."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Lease, Url
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output
from bucketq.model.operations import LeaseRef


async def run(out: Output, *, url: Url, job: JobId, lease: Lease) -> int:
    """Renew the lease of a job.

    The output says whether cancellation was requested. Exit code 4: the lease is lost; stop
    working on the job.

    Examples:
        bucketq heartbeat file:///srv/jobs/queue.json JOB LEASE
        bucketq heartbeat file:///srv/jobs/queue.json JOB LEASE --json | jq .cancel_requested
    """
    async with open_queue(url, out.timeout_s) as queue:
        [pulse] = await queue.heartbeat(LeaseRef(job, lease))
    if not pulse.held:
        out.done(f"the lease of {job} is lost; stop working on it", pulse)
        return exit_codes.REJECTED
    wish = "; cancellation was requested: stop, and release it" if pulse.cancel_requested else ""
    out.done(f"{job} is still leased to you{wish}", pulse)
    return exit_codes.OK
