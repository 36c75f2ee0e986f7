"""Commands of a worker: claim, heartbeat, complete, fail, release."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from bucketq.cli import exits
from bucketq.cli.options import (
    JobId,
    Kinds,
    Lease,
    Request,
    Url,
    opened,
    parse_duration,
    parse_json,
    read_bytes,
)
from bucketq.cli.output import Output
from bucketq.errors import InvalidRequestError, QueueNotFoundError
from bucketq.model import check
from bucketq.model.operations import LeaseRef
from bucketq.queue.base import MAX_WAIT_S, Queue

_LOOK_AGAIN_S = 1.0


async def claim(
    out: Output,
    *,
    url: Url,
    kinds: Kinds = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many jobs.", min=1)] = 1,
    wait: Annotated[
        str, typer.Option("--wait", metavar="DURATION", help="Wait for the first one, like 30s.")
    ] = "0",
    worker: Annotated[
        str | None,
        typer.Option("--worker", help="The name to claim under; by default host and process."),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="DURATION",
            help="How long they are yours without a heartbeat, like 10m; up to 7d.",
        ),
    ] = None,
    request: Request = None,
) -> int:
    """Take jobs to work on, and print them with their leases.

    Show the lease to `complete`, `fail`, `release` and `heartbeat`. Send a heartbeat every few
    seconds, or the job goes to another worker (see `lease_s` in `bucketq config`); a script that
    sends none says with --lease how long its work may take. Exit code 3: there was nothing to
    claim. With --wait the queue itself may be yet to come.

    Examples:
        bucketq claim file:///srv/jobs/queue.json --kind email --wait 30s
        bucketq claim file:///srv/jobs/queue.json --limit 10 --json | jq -r .lease
        bucketq claim file:///srv/jobs/queue.json --kind backup --lease 2h
    """
    out.after_interrupt = "what was claimed is given back, or its lease runs out by itself"
    until = asyncio.get_running_loop().time() + _parse_wait(wait)
    lease_s = None if lease is None else parse_duration(lease, "--lease")
    check.lease(lease_s)
    async with AsyncExitStack() as stack:
        queue = await _open(out, url, worker, until, stack)
        wait_s = max(0.0, until - asyncio.get_running_loop().time())
        jobs = await queue.claim(
            kinds or None, limit=limit, wait_s=wait_s, lease_s=lease_s, request=request
        )
    for job in jobs:
        payload = bytes(job.record.payload).decode()
        out.result(
            f"{job.id} {job.lease.lease} {job.kind} attempt {job.attempt}: {payload}", job.record
        )
    if not jobs:
        out.note("nothing to claim")
    return exits.OK if jobs else exits.NOTHING


def _parse_wait(text: str) -> float:
    wait_s = parse_duration(text, "--wait")
    if wait_s > MAX_WAIT_S:
        message = f"--wait must be at most 1h, got {text}"
        raise InvalidRequestError(message)
    return wait_s


async def _open(
    out: Output, url: str, worker: str | None, until: float, stack: AsyncExitStack
) -> Queue[Any]:
    """Open the queue, or wait until somebody has created it, for as long as there is time."""
    is_told = False
    while True:
        try:
            return await stack.enter_async_context(opened(url, out.timeout_s, worker=worker))
        except QueueNotFoundError as error:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise
            if not is_told:
                out.note(f"{error}; waiting for it")
                is_told = True
            await asyncio.sleep(min(_LOOK_AGAIN_S, left_s))


async def heartbeat(out: Output, *, url: Url, job: JobId, lease: Lease) -> int:
    """Say that a job is still being worked on.

    The answer tells whether somebody wants it cancelled. Exit code 4: the lease is lost, stop
    working on it.

    Examples:
        bucketq heartbeat file:///srv/jobs/queue.json JOB LEASE
        bucketq heartbeat file:///srv/jobs/queue.json JOB LEASE --json | jq .cancel_requested
    """
    async with opened(url, out.timeout_s) as queue:
        [pulse] = await queue.heartbeat(LeaseRef(job, lease))
    if not pulse.held:
        out.done(f"the lease of {job} is lost; stop working on it", pulse)
        return exits.REJECTED
    wish = "; somebody wants it cancelled: stop, and release it" if pulse.cancel_requested else ""
    out.done(f"{job} is yours{wish}", pulse)
    return exits.OK


async def complete(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    result: Annotated[
        str | None, typer.Option("--result", metavar="JSON", help="What came of it.")
    ] = None,
    result_file: Annotated[
        Path | None,
        typer.Option("--result-file", metavar="PATH", help="The same from a file; - is stdin."),
    ] = None,
    request: Request = None,
) -> None:
    """Finish a job, with an optional result. Doing it again under the same lease is no error.

    Examples:
        bucketq complete file:///srv/jobs/queue.json JOB LEASE
        bucketq complete file:///srv/jobs/queue.json JOB LEASE --result '{"sent": true}'
    """
    if result is not None and result_file is not None:
        message = "give --result or --result-file, not both"
        raise InvalidRequestError(message)
    raw = result.encode() if result is not None else None
    if result_file is not None:
        raw = read_bytes(result_file)
    value = None if raw is None else parse_json(raw, "the result")
    async with opened(url, out.timeout_s) as queue:
        await queue.complete(LeaseRef(job, lease), value, request=request)
    out.done(f"{job} is done", {"id": job, "status": "done"})


async def fail(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    error: Annotated[str, typer.Option("--error", "-e", help="What went wrong.")] = "failed",
    no_retry: Annotated[bool, typer.Option("--no-retry", help="Give it up at once.")] = False,
    request: Request = None,
) -> None:
    """Report that an attempt failed; it is tried again, or dead.

    Examples:
        bucketq fail file:///srv/jobs/queue.json JOB LEASE --error 'no such address'
        bucketq fail file:///srv/jobs/queue.json JOB LEASE --no-retry
    """
    out.after_interrupt = "running it again is safe: once it has taken effect, it is refused"
    async with opened(url, out.timeout_s) as queue:
        status = await queue.fail(LeaseRef(job, lease), error, retry=not no_retry, request=request)
    out.done(f"{job} is {status}", {"id": job, "status": status})


async def release(
    out: Output,
    *,
    url: Url,
    job: JobId,
    lease: Lease,
    delay: Annotated[
        str, typer.Option("--delay", metavar="DURATION", help="Not to be claimed before, like 5m.")
    ] = "0",
    request: Request = None,
) -> None:
    """Give a job back unharmed; it costs none of its attempts.

    Examples:
        bucketq release file:///srv/jobs/queue.json JOB LEASE
        bucketq release file:///srv/jobs/queue.json JOB LEASE --delay 5m
    """
    out.after_interrupt = "running it again is safe: once it has taken effect, it is refused"
    async with opened(url, out.timeout_s) as queue:
        await queue.release(
            LeaseRef(job, lease), delay_s=parse_duration(delay, "--delay"), request=request
        )
    out.done(f"{job} is given back", {"id": job, "status": "queued"})
