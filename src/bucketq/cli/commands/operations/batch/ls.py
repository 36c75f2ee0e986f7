"""``bucketq batch ls``: list the batches."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column


async def run(out: Output, *, url: Url) -> None:
    """List the batches, with how many of their jobs have ended.

    A batch is open (jobs can be added), closed, done (all have ended) or cancelled. Those that have
    ended are listed for a day (batch_retention_s).

    Examples:
        bucketq batch ls s3://bucket/jobs/queue.json
        bucketq batch ls s3://bucket/jobs/queue.json --json | jq 'select(.status == "open")'
    """
    async with open_queue(url, out.timeout_s) as queue:
        batches = await queue.batches()
    columns = [Column("ID", flexible=True), Column("STATUS"), Column("JOBS", right=True)]
    columns += [Column(name, right=True) for name in ("COMPLETED", "FAILED", "LEFT")]
    found = [structs.asdict(each) | {"failed": each.failed, "left": each.open} for each in batches]
    out.records([*columns, Column("OPENED"), Column("CALLBACK")], found, _cells)


def _cells(row: dict[str, Any]) -> list[object]:
    callback = row["callback"] or row["on_done"] or ""
    counts = [row["jobs"], row["completed"], row["failed"], row["left"]]
    return [row["id"], row["status"], *counts, row["opened_at"], callback]
