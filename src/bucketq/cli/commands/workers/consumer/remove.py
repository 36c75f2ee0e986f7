"""``bucketq consumer remove``: forget a consumer."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output

Name = Annotated[str, argument("NAME", "Name of the consumer, as shown by `list`.")]


async def run(out: Output, *, url: Url, name: Name, request: Request = None) -> int:
    """Release the jobs of a consumer and forget it. Stop its driver first.

    A driver that keeps running is rejected until a consumer of this name is opened again, whose
    batches count from 1.

    Examples:
        bucketq consumer remove s3://bucket/jobs/queue.json spark-orders
    """
    async with open_queue(url, out.timeout_s) as queue:
        was_there = await queue.remove_consumer(name, request=request)
    if was_there or out.json:
        out.done(f"consumer {name} is removed", {"name": name, "removed": was_there})
    if was_there:
        return exit_codes.OK
    out.note(f"there is no consumer {name}: it was removed, has expired, or never existed")
    return exit_codes.NOTHING
