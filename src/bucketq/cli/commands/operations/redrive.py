"""``bucketq redrive``: queue dead jobs again."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Jobs, Kinds, Request, Url, option
from bucketq.cli.terminal.output import Output, counted


async def run(
    out: Output,
    *,
    url: Url,
    jobs: Jobs = None,
    kinds: Kinds = None,
    limit: Annotated[
        int | None, option("--limit -n", "Maximum number of jobs, the longest dead first.")
    ] = None,
    request: Request = None,
) -> None:
    """Queue dead jobs again, with all their attempts.

    Examples:
        bucketq redrive file:///srv/jobs/queue.json --kind email
        bucketq redrive file:///srv/jobs/queue.json JOB1 JOB2
    """
    async with open_queue(url, out.timeout_s) as queue:
        count = await queue.redrive(jobs or None, kinds=kinds or None, limit=limit, request=request)
    out.done(f"{counted(count, 'job')} redriven", {"redriven": count})
