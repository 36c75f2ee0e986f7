"""``bucketq purge``: move dead jobs to the archive."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Jobs, Kinds, Request, Url, Yes, option
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output, counted
from bucketq.cli.terminal.user_input import confirmed


async def run(
    out: Output,
    *,
    url: Url,
    jobs: Jobs = None,
    kinds: Kinds = None,
    older_than: Annotated[
        str, option("--older-than DURATION", "Only jobs dead for this long, like 7d.")
    ] = "0",
    yes: Yes = False,
    request: Request = None,
) -> int:
    """Move dead jobs to the archive. They keep the outcome `dead` and cannot be redriven.

    Examples:
        bucketq purge file:///srv/jobs/queue.json --older-than 7d
        bucketq purge file:///srv/jobs/queue.json JOB1 JOB2 --yes
    """
    older_than_s = parse_duration(older_than, "--older-than")
    async with open_queue(url, out.timeout_s) as queue:
        if not yes and not jobs:
            dead = (await queue.stats()).total("dead")
            what = f"move dead jobs to the archive ({dead:,} are dead in total)"
            if not confirmed(out, what):
                return 1
        count = await queue.purge(
            jobs or None, kinds=kinds or None, older_than_s=older_than_s, request=request
        )
    out.done(f"{counted(count, 'job')} purged", {"purged": count})
    return 0
