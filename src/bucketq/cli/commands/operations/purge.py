"""``bucketq purge``."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Jobs, Kinds, Request, Url, Yes
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output, counted
from bucketq.cli.terminal.prompt import confirmed


async def run(
    out: Output,
    *,
    url: Url,
    jobs: Jobs = None,
    kinds: Kinds = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Dead for so long, like 7d.")
    ] = "0",
    yes: Yes = False,
    request: Request = None,
) -> int:
    """Finish dead jobs for good. They go to the archive, with outcome `dead`.

    Examples:
        bucketq purge file:///srv/jobs/queue.json --older-than 7d
        bucketq purge file:///srv/jobs/queue.json JOB1 JOB2 --yes
    """
    older_than_s = parse_duration(older_than, "--older-than")
    async with open_queue(url, out.timeout_s) as queue:
        if not yes and not jobs:
            dead = (await queue.stats()).total("dead")
            what = f"finish dead jobs for good ({dead:,} are dead in all)"
            if not confirmed(out, what):
                return 1
        count = await queue.purge(
            jobs or None, kinds=kinds or None, older_than_s=older_than_s, request=request
        )
    out.done(f"{counted(count, 'job')} purged", {"purged": count})
    return 0
