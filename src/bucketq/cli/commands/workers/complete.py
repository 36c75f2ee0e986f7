"""``bucketq complete``: complete a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import JobId, Lease, Request, Url, option
from bucketq.cli.parsing import parse_json, read_bytes
from bucketq.cli.terminal.output import Output
from bucketq.errors import InvalidRequestError
from bucketq.model.operations import LeaseRef


async def run(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    result: Annotated[str | None, option("--result JSON", "Result of the job.")] = None,
    result_file: Annotated[
        Path | None, option("--result-file PATH", "Read the result from a file; - is stdin.")
    ] = None,
    request: Request = None,
) -> None:
    """Complete a job, with an optional result. Repeating it with the same lease is not an error.

    Examples:
        bucketq complete file:///srv/jobs/queue.json JOB LEASE
        bucketq complete file:///srv/jobs/queue.json JOB LEASE --result '{"sent": true}'
    """
    if result is not None and result_file is not None:
        raise InvalidRequestError("give --result or --result-file, not both")
    raw = result.encode() if result is not None else None
    if result_file is not None:
        raw = read_bytes(result_file)
    value = None if raw is None else parse_json(raw, "the result")
    async with open_queue(url, out.timeout_s) as queue:
        await queue.complete(LeaseRef(job, lease), value, request=request)
    out.done(f"{job} is done", {"id": job, "status": "done"})
