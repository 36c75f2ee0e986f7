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
    if out.json:
        for token in tokens:
            out.value(token)
        return
    columns = [Column("ID"), Column("NAME", flexible=True), Column("RIGHTS"), Column("CREATED")]
    out.table(
        [*columns, Column("EXPIRES")],
        (
            (token.id, token.name, ",".join(token.rights), token.created_at, token.expires_at)
            for token in tokens
        ),
    )
