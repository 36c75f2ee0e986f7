"""``bucketq consumer``: which engines claim numbered batches, and what each holds."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import structs

from bucketq.cli import exits
from bucketq.cli.options import Request, Url, opened
from bucketq.cli.output import Output
from bucketq.cli.table import Column

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The consumer, as `list` shows it.", show_default=False),
]


async def list_consumers(out: Output, *, url: Url) -> None:
    """List the consumers, and the last batch of each.

    PENDING is how many jobs it holds, while it is not acknowledged.

    Examples:
        bucketq consumer list s3://bucket/jobs/queue.json
        bucketq consumer list s3://bucket/jobs/queue.json --json | jq 'select(.pending > 0)'
    """
    async with opened(url, out.timeout_s) as queue:
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


async def remove(out: Output, *, url: Url, name: Name, request: Request = None) -> int:
    """Give back what a consumer holds, and forget it. Stop its driver first.

    A driver that goes on is refused, until somebody opens a consumer of this name again: then
    batches are counted from 1 once more.

    Examples:
        bucketq consumer remove s3://bucket/jobs/queue.json spark-orders
    """
    async with opened(url, out.timeout_s) as queue:
        was_there = await queue.remove_consumer(name, request=request)
    if was_there:
        out.done(f"consumer {name} is removed", {"name": name, "removed": True})
        return exits.OK
    if out.json:
        out.value({"name": name, "removed": False})
    out.note(f"there is no consumer {name}: it was removed or forgotten, or never was")
    return exits.NOTHING
