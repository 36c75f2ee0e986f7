"""``bucketq drain``: ask a worker to finish."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, WorkerName
from bucketq.cli.terminal.output import Output, counted


async def run(out: Output, *, url: Url, worker: WorkerName, request: Request = None) -> None:
    """Ask a worker to finish its jobs and exit, as on SIGTERM.

    The worker learns of it with its next heartbeat, a few seconds later. It claims no more jobs,
    lets its handlers finish within its drain time, and exits; `bucketq workers` shows it as
    draining until then. The request is kept in the queue, so it survives a restart of the broker. A
    worker that is started later under the same name is not affected.

    Examples:
        bucketq drain s3://bucket/jobs/queue.json web-3:4711
    """
    async with open_queue(url, out.timeout_s) as queue:
        asked = await queue.drain(worker, request=request)
    out.done(f"asked {counted(asked, 'worker')} to finish", {"worker": worker, "asked": asked})
