"""``bucketq token list``: list the access tokens."""

from __future__ import annotations

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column


async def run(out: Output, *, url: Url) -> None:
    """List the valid tokens. The tokens themselves are not stored.

    Examples:
        bucketq token list s3://bucket/jobs/queue.json
        bucketq token list s3://bucket/jobs/queue.json --json
    """
    async with open_queue(url, out.timeout_s) as queue:
        tokens = await queue.tokens()
    columns = [Column("ID"), Column("NAME", flexible=True), Column("RIGHTS"), Column("CREATED")]
    out.records(
        [*columns, Column("EXPIRES")],
        tokens,
        lambda one: (one.id, one.name, ",".join(one.rights), one.created_at, one.expires_at),
    )
