"""``bucketq cancel``: cancel a job, or the jobs of a batch."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument, option
from bucketq.cli.terminal.output import Output, counted
from bucketq.errors import InvalidRequestError


async def run(
    out: Output,
    *,
    url: Url,
    job: Annotated[str | None, argument("JOB", "Id of the job.")] = None,
    batch_id: Annotated[
        str | None, option("--batch-id BATCH", "Cancel all jobs of this batch that are not over.")
    ] = None,
    request: Request = None,
) -> None:
    """Cancel a queued job, or ask the worker of a running one to stop.

    With --batch-id all jobs of a batch, in several commits if there are many. The batch goes on:
    when it is closed and they have ended, its callback runs, and counts them as cancelled. `bucketq
    batch cancel` ends a batch without its callback.

    Examples:
        bucketq cancel file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq cancel file:///srv/jobs/queue.json --batch-id nightly-2026-01-31
    """
    if (job is None) is (batch_id is None):
        message = "name a job to cancel, or a batch with --batch-id"
        raise InvalidRequestError(message)
    async with open_queue(url, out.timeout_s) as queue:
        if job is None:
            found = await queue.cancel_jobs(batch_id or "", request=request)
            asked = f"; {found.requested:,} running, asked to stop" if found.requested else ""
            counts = {"cancelled": found.cancelled, "requested": found.requested}
            out.done(f"{counted(found.cancelled, 'job')} cancelled{asked}", counts)
            return
        answer = await queue.cancel(job, request=request)
    text = {
        "cancelled": f"{job} is cancelled",
        "requested": f"{job} is running; its worker was asked to stop",
        "finished": f"{job} has already finished",
    }[answer]
    out.done(text, {"id": job, "answer": answer})
