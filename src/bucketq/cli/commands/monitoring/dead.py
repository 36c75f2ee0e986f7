"""``bucketq dead``: list dead jobs."""

from __future__ import annotations

from bucketq.cli.job_listing import After, last_error, list_jobs
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kinds, Limit, Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column

_DEAD_COLUMNS = (
    Column("JOB"),
    Column("KIND"),
    Column("ATTEMPT", right=True, drop=2),
    Column("DIED", drop=1),
    Column("LAST ERROR", flexible=True),
)


async def run(
    out: Output, *, url: Url, kinds: Kinds = None, limit: Limit = 50, after: After = 0
) -> None:
    """List dead jobs with their last error.

    `redrive` queues them again, `purge` moves them to the archive.

    Examples:
        bucketq dead file:///srv/jobs/queue.json
        bucketq dead file:///srv/jobs/queue.json --kind email --json | jq -r .id
    """
    async with open_queue(url, out.timeout_s) as queue:
        await list_jobs(
            out,
            queue,
            _DEAD_COLUMNS,
            lambda job: (job.id, job.kind, job.attempt, job.finished_at, last_error(job)),
            limit=limit,
            statuses="dead",
            kinds=kinds or None,
            after=after,
        )
