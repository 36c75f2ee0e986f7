"""``bucketq claim``: claim jobs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Annotated, Any

from bucketq.cli.job_listing import describe_body
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kinds, Limit, Request, Url, option
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output
from bucketq.errors import InvalidRequestError, QueueNotFoundError
from bucketq.model import check
from bucketq.queue.arguments import MAX_WAIT_S
from bucketq.queue.queue import Queue

# How often --wait checks for a queue that does not exist yet; a person notices no second.
_RETRY_S = 1.0
# A longer payload is not printed: it would hide everything else.
_SHOWN_CHARS = 65_536


async def run(
    out: Output,
    *,
    url: Url,
    kinds: Kinds = None,
    limit: Limit = 1,
    wait: Annotated[str, option("--wait DURATION", "How long to wait for a job, like 30s.")] = "0",
    worker: Annotated[
        str | None, option("--worker", "Name of the worker; host and process id by default.")
    ] = None,
    lease: Annotated[
        str | None,
        option(
            "--lease DURATION", "How long the lease lasts without a heartbeat, like 10m; up to 7d."
        ),
    ] = None,
    request: Request = None,
) -> int:
    """Claim jobs and print them with their leases.

    Pass the lease to `complete`, `fail`, `release` and `heartbeat`. Send a heartbeat every few
    seconds, or the job goes to another worker (see `lease_s` in `bucketq config`); a script that
    sends none sets --lease to how long its work may take. Exit code 3: no job was available.
    With --wait the queue need not exist yet.

    Examples:
        bucketq claim file:///srv/jobs/queue.json --kind email --wait 30s
        bucketq claim file:///srv/jobs/queue.json --limit 10 --json | jq -r .lease
        bucketq claim file:///srv/jobs/queue.json --kind backup --lease 2h
    """
    out.after_interrupt = "claimed jobs are released, or their leases expire"
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
        payload = describe_body(job.record.payload, job.record.payload_encoding)
        if payload is None:
            payload = bytes(job.record.payload).decode()
            if len(payload) > _SHOWN_CHARS:
                payload = f"{len(payload):,} characters (`bucketq show --payload` prints them)"
        out.result(
            f"{job.id} {job.lease.lease} {job.kind} attempt {job.attempt}: {payload}", job.record
        )
    if not jobs:
        out.note("nothing to claim")
    return exit_codes.OK if jobs else exit_codes.NOTHING


def _parse_wait(text: str) -> float:
    wait_s = parse_duration(text, "--wait")
    if wait_s > MAX_WAIT_S:
        raise InvalidRequestError(f"--wait must be at most 1h, got {text}")
    return wait_s


async def _open(
    out: Output, url: str, worker: str | None, until: float, stack: AsyncExitStack
) -> Queue[Any]:
    """Open the queue, or wait until it is created, for as long as there is time."""
    is_noted = False
    while True:
        try:
            return await stack.enter_async_context(open_queue(url, out.timeout_s, worker=worker))
        except QueueNotFoundError as error:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise
            if not is_noted:
                out.note(f"{error}; waiting for it")
                is_noted = True
            await asyncio.sleep(min(_RETRY_S, left_s))
