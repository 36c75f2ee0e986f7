"""``bucketq schedule ls``: list the schedules."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column


async def run(out: Output, *, url: Url) -> None:
    """List the schedules, with the next due time of each.

    NEXT is empty for a schedule with a cron expression if the extra `cron` is not installed here.

    Examples:
        bucketq schedule ls s3://bucket/jobs/queue.json
        bucketq schedule ls s3://bucket/jobs/queue.json --json | jq 'select(.paused)'
    """
    async with open_queue(url, out.timeout_s) as queue:
        schedules = await queue.schedules()
    columns = [Column("NAME", flexible=True), Column("KIND"), Column("DUE"), Column("MISSED")]
    found = [structs.asdict(schedule) for schedule in schedules]
    out.records([*columns, Column("NEXT"), Column("LAST JOB")], found, _cells)


def _cells(row: dict[str, Any]) -> list[object]:
    due = f"{row['cron']} {row['timezone']}" if row["cron"] else f"every {row['every_s']:g} s"
    next_at = "paused" if row["paused"] else row["next_at"] or ""
    return [row["name"], row["kind"], due, row["missed"], next_at, row["last_job"] or ""]
