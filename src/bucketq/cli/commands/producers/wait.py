"""``bucketq wait``: wait for the result of a job."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketq.cli.job_listing import describe_progress
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Url
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.status_line import StatusLine
from bucketq.model.records import Progress
from bucketq.queue.queue import Queue


async def run(out: Output, *, url: Url, job: JobId) -> int:
    """Wait until a job is over and print its result.

    It waits for as long as --timeout allows. A terminal shows how far the job has come meanwhile,
    if its handler reports that. The result is printed as JSON, bytes as base64. Exit code 4: the
    job is dead, was cancelled or has expired. Exit code 3: there is no such job, in the queue or in
    its archive, or it is not over yet.

    Examples:
        bucketq wait file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq wait s3://bucket/jobs/queue.json my-job --timeout 10m | jq .url
    """
    async with open_queue(url, out.timeout_s) as queue:
        return await print_result(out, queue, job, out.timeout_s)


async def print_result(out: Output, queue: Queue[Any], job_id: str, timeout_s: float) -> int:
    """Wait for a job and print its result; return the exit code."""
    line = StatusLine(out, f"waiting for job {job_id}")

    def show(progress: Progress) -> None:
        line.show(f"job {job_id}: {describe_progress(progress)}")

    try:
        with line:
            result = await queue.wait(job_id, timeout_s=timeout_s, on_progress=show)
    except TimeoutError as error:
        out.note(str(error))
        return exit_codes.NOTHING
    out.result(msgspec.json.encode(result).decode(), {"id": str(job_id), "result": result})
    return exit_codes.OK
