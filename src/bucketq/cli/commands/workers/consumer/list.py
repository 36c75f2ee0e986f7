"""``bucketq consumer list``: list the consumers."""

from __future__ import annotations

from msgspec import structs

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column


async def run(out: Output, *, url: Url) -> None:
    """List the consumers and the last batch of each.

    PENDING is the number of jobs in that batch while it is not acknowledged.

    Examples:
        bucketq consumer list s3://bucket/jobs/queue.json
        bucketq consumer list s3://bucket/jobs/queue.json --json | jq 'select(.pending > 0)'
    """
    async with open_queue(url, out.timeout_s) as queue:
        consumers = await queue.consumers()
    if out.json:
        for consumer in consumers:
            out.value(structs.asdict(consumer))
        return
    numbers = [Column("EPOCH"), Column("BATCH"), Column("PENDING")]
    out.table(
        [Column("NAME", flexible=True), *numbers, Column("USED")],
        (
            (each.name, str(each.epoch), str(each.batch), str(each.pending), each.at)
            for each in consumers
        ),
    )
