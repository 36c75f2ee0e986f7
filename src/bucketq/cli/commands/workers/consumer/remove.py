"""``bucketq consumer remove``."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The consumer, as `list` shows it.", show_default=False),
]


async def run(out: Output, *, url: Url, name: Name, request: Request = None) -> int:
    """Give back what a consumer holds, and forget it. Stop its driver first.

    A driver that goes on is refused, until somebody opens a consumer of this name again: then
    batches are counted from 1 once more.

    Examples:
        bucketq consumer remove s3://bucket/jobs/queue.json spark-orders
    """
    async with open_queue(url, out.timeout_s) as queue:
        was_there = await queue.remove_consumer(name, request=request)
    if was_there:
        out.done(f"consumer {name} is removed", {"name": name, "removed": True})
        return exit_codes.OK
    if out.json:
        out.value({"name": name, "removed": False})
    out.note(f"there is no consumer {name}: it was removed or forgotten, or never was")
    return exit_codes.NOTHING
