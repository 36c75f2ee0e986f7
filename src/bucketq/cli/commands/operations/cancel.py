"""``bucketq cancel``: cancel a job."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Request, Url
from bucketq.cli.terminal.output import Output


async def run(out: Output, *, url: Url, job: JobId, request: Request = None) -> None:
    """Cancel a queued job, or ask the worker of a running one to stop.

    Examples:
        bucketq cancel file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
    """
    async with open_queue(url, out.timeout_s) as queue:
        answer = await queue.cancel(job, request=request)
    text = {
        "cancelled": f"{job} is cancelled",
        "requested": f"{job} is running; its worker was asked to stop",
        "finished": f"{job} has already finished",
    }[answer]
    out.done(text, {"id": job, "answer": answer})
