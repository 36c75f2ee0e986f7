"""``bucketq archive prune``: delete old archived jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from bucketq.cli.parameters import Url, Yes, option
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output, counted
from bucketq.cli.terminal.user_input import confirmed
from bucketq.client.archive import open_archive


async def run(
    out: Output,
    *,
    url: Url,
    older_than: Annotated[
        str, option("--older-than DURATION", "Delete jobs that finished this long ago, like 90d.")
    ],
    yes: Yes = False,
) -> int:
    """Delete old archived jobs, in whole hours. Asks for confirmation.

    Examples:
        bucketq archive prune s3://bucket/jobs/queue.json --older-than 90d
        bucketq archive prune s3://bucket/jobs/queue.json --older-than 90d --yes
    """
    age = timedelta(seconds=parse_duration(older_than, "--older-than"))
    if not yes and not confirmed(out, f"delete archived jobs older than {older_than}"):
        return 1
    async with open_archive(url) as archive:
        count = await archive.prune(age)
    out.done(f"{counted(count, 'archive file')} deleted", {"archive_files": count})
    return 0
