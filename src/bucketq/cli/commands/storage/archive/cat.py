"""``bucketq archive cat``: print finished jobs as JSON lines."""

from __future__ import annotations

from bucketq.cli.parameters import Kinds, Since, Until, Url
from bucketq.cli.parsing import moments
from bucketq.cli.terminal.output import Output
from bucketq.client.archive import open_archive


async def run(
    out: Output, *, url: Url, since: Since = "24h", until: Until = None, kinds: Kinds = None
) -> None:
    """Print the jobs that finished in a time range as JSON lines.

    Examples:
        bucketq archive cat s3://bucket/jobs/queue.json --since 1h | jq -r .result
        bucketq archive cat s3://bucket/jobs/queue.json --since 7d --kind email > email.jsonl
    """
    begin, end = moments(since, until, "--since", "--until")
    async with open_archive(url) as archive:
        async for found in archive.jobs(begin, end, kinds=kinds or None):
            out.value(found.record)
