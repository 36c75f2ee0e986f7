"""``bucketq archive collect``: delete duplicate archive files."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.parameters import Url, option
from bucketq.cli.parsing import now, parse_moment
from bucketq.cli.terminal.output import Output, counted
from bucketq.client.archive import open_archive


async def run(
    out: Output,
    *,
    url: Url,
    since: Annotated[
        str | None, option("--since TIME", "Start of the time range; the beginning by default.")
    ] = None,
) -> None:
    """Delete duplicate archive files that a crash left behind.

    Examples:
        bucketq archive collect s3://bucket/jobs/queue.json
        bucketq archive collect s3://bucket/jobs/queue.json --since 7d
    """
    begin = None if since is None else parse_moment(since, "--since", now())
    async with open_archive(url) as archive:
        count = await archive.collect(begin)
    out.done(f"{counted(count, 'archive file')} deleted", {"archive_files": count})
