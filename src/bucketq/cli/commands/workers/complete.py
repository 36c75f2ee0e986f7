"""``bucketq complete``: complete a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bucketq.cli.bulk.feeds import parse_spec
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
    push: Annotated[
        list[str] | None, option("--push JSON", "Job to push in the same commit (repeatable).")
    ] = None,
    request: Request = None,
) -> None:
    """Complete a job, with an optional result. Repeating it with the same lease is not an error.

    With --push, follow-up jobs are added in the same commit: they exist if and only if the job was
    completed. Each is an object like a line of `bucketq push --bulk`.

    Examples:
        bucketq complete file:///srv/jobs/queue.json JOB LEASE
        bucketq complete file:///srv/jobs/queue.json JOB LEASE --result '{"sent": true}'
        bucketq complete file:///srv/queue.json JOB LEASE --push '{"kind": "log", "payload": 1}'
    """
    if result is not None and result_file is not None:
        raise InvalidRequestError("give --result or --result-file, not both")
    raw = result.encode() if result is not None else None
    if result_file is not None:
        raw = read_bytes(result_file)
    value = None if raw is None else parse_json(raw, "the result")
    specs = [parse_spec(text, "--push") for text in push or ()]
    async with open_queue(url, out.timeout_s) as queue:
        pushed = await queue.complete(LeaseRef(job, lease), value, push=specs, request=request)
    facts: dict[str, object] = {"id": job, "status": "done"}
    if pushed:
        facts["pushed"] = [str(each) for each in pushed]
    out.done(f"{job} is done", facts)
