"""``bucketq limit ls``: list the limits."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column


async def run(out: Output, *, url: Url) -> None:
    """List the limits, and how near each is.

    ACTIVE is how many jobs are running, TOKENS how many the rate lets start at this moment. For
    group=* they are empty, because each group is counted by itself.

    Examples:
        bucketq limit ls s3://bucket/jobs/queue.json
        bucketq limit ls s3://bucket/jobs/queue.json --json | jq 'select(.tokens == 0)'
    """
    async with open_queue(url, out.timeout_s) as queue:
        limits = await queue.limits()
    columns = [Column("LIMIT", flexible=True), Column("RUNNING", right=True), Column("RATE")]
    columns += [Column("ACTIVE", right=True), Column("TOKENS", right=True)]
    out.records(columns, [structs.asdict(limit) for limit in limits], _cells)


def _cells(row: dict[str, Any]) -> list[object]:
    rate = "" if row["rate"] is None else f"{row['rate']} in {row['period_s']:g} s"
    numbers = [row["running"], rate, row["active"], row["tokens"]]
    return [row["target"], *("" if number is None else number for number in numbers)]
