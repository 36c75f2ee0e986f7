"""``bucketq archive``: finished jobs, by the time at which they finished."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from bucketq.cli.options import Kinds, Url, Yes, moments, now, opened, parse_duration, parse_moment
from bucketq.cli.output import Output, counted
from bucketq.cli.prompt import confirmed
from bucketq.cli.table import Column
from bucketq.client.archive import open_archive

Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="From: 2h (ago), 2026-02-15, or 2026-02-15T10:00:00Z."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Up to, not including; by default now."),
]


_PAGE = 1000
"""So many rows of a table are written at once."""


async def ls(
    out: Output,
    *,
    url: Url,
    since: Since = "24h",
    until: Until = None,
    kinds: Kinds = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="At most so many.", min=1)] = 50,
    job: Annotated[
        str | None, typer.Option("--id", metavar="JOB", help="Only the job with this id.")
    ] = None,
) -> None:
    """List finished jobs of a range of time, each once.

    Examples:
        bucketq archive ls s3://bucket/jobs/queue.json --since 2h
        bucketq archive ls s3://bucket/jobs/queue.json --since 2026-02-15 --until 2026-02-16
        bucketq archive ls s3://bucket/jobs/queue.json --since 7d --id JOB
    """
    begin, end = moments(since, until, "--since", "--until")
    columns = [Column("JOB"), Column("KIND"), Column("OUTCOME")]
    columns += [Column("ATTEMPT", right=True, drop=2), Column("FINISHED", drop=1)]
    table = out.table(columns)
    rows: list[tuple[object, ...]] = []
    listed = 0
    is_cut = False
    async with open_archive(url) as archive:
        async for found in archive.jobs(begin, end, kinds=kinds or None):
            if job is not None and found.id != job:
                continue
            if listed == limit:
                is_cut = True
                break
            listed += 1
            if out.json:
                out.value(found.record)
                continue
            rows.append((found.id, found.kind, found.outcome, found.attempt, found.finished_at))
            if len(rows) == _PAGE:
                table.write(rows)
                rows.clear()
    if not out.json:
        table.write(rows)
    if is_cut:
        out.note(f"there are more than {limit}: narrow the range, or raise --limit")


async def cat(
    out: Output, *, url: Url, since: Since = "24h", until: Until = None, kinds: Kinds = None
) -> None:
    """Print finished jobs of a range of time as JSON lines, each once.

    Examples:
        bucketq archive cat s3://bucket/jobs/queue.json --since 1h | jq -r .result
        bucketq archive cat s3://bucket/jobs/queue.json --since 7d --kind email > email.jsonl
    """
    begin, end = moments(since, until, "--since", "--until")
    async with open_archive(url) as archive:
        async for found in archive.jobs(begin, end, kinds=kinds or None):
            out.value(found.record)


async def flush(out: Output, *, url: Url) -> None:
    """Archive everything that is finished now.

    Long-lived processes do that by themselves, `archive_after_s` after a job has finished.

    Examples:
        bucketq archive flush file:///srv/jobs/queue.json
    """
    async with opened(url, out.timeout_s) as queue:
        count = await queue.flush_archive()
    out.done(f"{counted(count, 'job')} archived", {"archived": count})


async def prune(
    out: Output,
    *,
    url: Url,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Finished so long ago, as 90d.")
    ],
    yes: Yes = False,
) -> int:
    """Delete archived jobs that are too old, in whole hours. It asks first.

    Examples:
        bucketq archive prune s3://bucket/jobs/queue.json --older-than 90d
        bucketq archive prune s3://bucket/jobs/queue.json --older-than 90d --yes
    """
    age = timedelta(seconds=parse_duration(older_than, "--older-than"))
    if not yes and not confirmed(out, f"delete archived jobs older than {older_than}"):
        return 1
    async with open_archive(url) as archive:
        count = await archive.prune(age)
    out.done(f"{counted(count, 'segment')} deleted", {"segments": count})
    return 0


async def collect(
    out: Output,
    *,
    url: Url,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="From here on; by default from the start."),
    ] = None,
) -> None:
    """Delete segments that a crash left and that repeat others.

    Examples:
        bucketq archive collect s3://bucket/jobs/queue.json
        bucketq archive collect s3://bucket/jobs/queue.json --since 7d
    """
    begin = None if since is None else parse_moment(since, "--since", now())
    async with open_archive(url) as archive:
        count = await archive.collect(begin)
    out.done(f"{counted(count, 'segment')} deleted", {"segments": count})
