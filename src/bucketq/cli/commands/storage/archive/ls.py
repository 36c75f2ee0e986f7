"""``bucketq archive ls``: list finished jobs."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.parameters import Kinds, Limit, Since, Until, Url, option
from bucketq.cli.parsing import moments
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column
from bucketq.client.archive import open_archive

# Rows per page of the table, as in `ls`.
_PAGE = 1000


async def run(
    out: Output,
    *,
    url: Url,
    since: Since = "24h",
    until: Until = None,
    kinds: Kinds = None,
    limit: Limit = 50,
    job: Annotated[str | None, option("--id JOB", "Only the job with this id.")] = None,
) -> None:
    """List the jobs that finished in a time range.

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
        out.note(f"there are more than {limit}: narrow the time range, or raise --limit")
