"""``bucketq ls``: list the jobs of a queue."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from bucketq.cli.job_listing import (
    After,
    PastJobs,
    describe_body,
    describe_progress,
    last_error,
    list_jobs,
)
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kinds, Limit, Url, option
from bucketq.cli.parsing import now, parse_tags
from bucketq.cli.past_versions import At, read_past
from bucketq.cli.terminal.output import Output, age, moment
from bucketq.cli.terminal.text_table import Column
from bucketq.model.records import STATUSES
from bucketq.queue.job import Job
from bucketq.queue.queue import Queue

Groups = Annotated[
    list[str] | None, option("--group NAME", "Only jobs of this group; may be repeated.")
]
BatchOf = Annotated[str | None, option("--batch-id BATCH", "Only jobs of this batch.")]
All = Annotated[bool, option("--all", "List all jobs, page by page.")]

_COLUMNS = (
    Column("JOB"),
    Column("KIND"),
    Column("STATUS"),
    Column("PRIO", right=True, drop=3),
    Column("ATTEMPT", right=True, drop=2),
    Column("AGE", right=True, drop=1),
    Column("NOTE", flexible=True, drop=4),
    Column("PAYLOAD", flexible=True, drop=5),
)

# More than fits on a terminal, and little for a list in a file; `show` prints the whole payload.
_PAYLOAD_CHARS = 200
# Leaves room for payloads in the table; `dead` shows the whole error.
_NOTE_CHARS = 60


async def run(
    out: Output,
    *,
    url: Url,
    statuses: Annotated[
        list[str] | None, option("--status -s", f"Only this status: {', '.join(STATUSES)}.")
    ] = None,
    kinds: Kinds = None,
    tags: Annotated[
        list[str] | None, option("--tag -t NAME=VALUE", "Only jobs with this tag; may be repeated.")
    ] = None,
    groups: Groups = None,
    batch_id: BatchOf = None,
    limit: Limit = 50,
    after: After = 0,
    every: All = False,
    at: At = None,
) -> None:
    """List jobs in the order in which they were pushed.

    With --json each job is one line, with the same fields as in the object. With --at they are
    listed as they were then, without leases, if the queue has a history.

    Examples:
        bucketq ls file:///srv/jobs/queue.json --status queued --kind email
        bucketq ls file:///srv/jobs/queue.json --tag team=growth --limit 500
        bucketq ls file:///srv/jobs/queue.json --group acme --status running
        bucketq ls file:///srv/jobs/queue.json --batch-id nightly-2026-01-31 --status dead
        bucketq ls file:///srv/jobs/queue.json --all --json | jq -r .id
        bucketq ls file:///srv/jobs/queue.json --status running --at 2026-02-15T10:00:00Z
    """
    moment_now = now()
    async with open_queue(url, out.timeout_s, reads_all=at is not None) as queue:
        pages: Queue[Any] | PastJobs = queue
        if at is not None:
            pages = PastJobs(past := await read_past(queue, at, "--at"))
            moment_now = past.at
            if not out.json:
                out.note(
                    f"version {past.version} of {moment(past.at)}; `bucketq show --at` has more"
                )
        await list_jobs(
            out,
            pages,
            _COLUMNS,
            lambda job: _row_of(job, moment_now),
            limit=None if every else limit,
            statuses=statuses or None,
            kinds=kinds or None,
            tags=parse_tags(tags),
            groups=groups or None,
            batch_id=batch_id or "",
            after=after,
        )


def _row_of(job: Job[Any], moment_now: datetime) -> tuple[object, ...]:
    return (
        job.id,
        job.kind,
        "held" if job.is_held else job.status,
        job.priority,
        job.attempt,
        age(job.pushed_at, moment_now),
        _note_on(job),
        describe_body(job.record.payload, job.record.payload_encoding)
        or bytes(job.record.payload)[:_PAYLOAD_CHARS].decode(errors="replace"),
    )


def _note_on(job: Job[Any]) -> str:
    """Details that the status does not show."""
    if job.status == "running":
        come = f", {describe_progress(job.progress)}" if job.progress is not None else ""
        is_cancelled = " (cancel requested)" if job.record.cancel_requested else ""
        return f"{job.worker}{come}{is_cancelled}"
    if job.status == "queued" and job.run_at is not None:
        return f"from {moment(job.run_at)}"
    if job.status == "dead":
        error = last_error(job)
        return error if len(error) <= _NOTE_CHARS else f"{error[: _NOTE_CHARS - 1]}…"
    return job.outcome or ""
