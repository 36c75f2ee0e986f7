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
    columns = [Column("NAME", flexible=True), Column("EPOCH"), Column("BATCH"), Column("PENDING")]
    # With all fields, also those that the object omits because they are zero.
    found = map(structs.asdict, consumers)
    out.records([*columns, Column("USED")], found, lambda one: list(one.values()))
