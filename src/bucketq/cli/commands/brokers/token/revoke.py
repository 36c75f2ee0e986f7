"""``bucketq token revoke``: revoke an access token."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output

TokenId = Annotated[str, argument("ID", "Id of the token, as shown by `list`.")]


async def run(out: Output, *, url: Url, token_id: TokenId, request: Request = None) -> int:
    """Revoke a token. Brokers keep requiring tokens, even after the last one.

    Examples:
        bucketq token revoke s3://bucket/jobs/queue.json 4f1e09ab
        bucketq config s3://bucket/jobs/queue.json require_token=false
    """
    async with open_queue(url, out.timeout_s) as queue:
        was_there = await queue.revoke_token(token_id, request=request)
    if was_there or out.json:
        out.done(f"token {token_id} is revoked", {"id": token_id, "revoked": was_there})
    if was_there:
        return exit_codes.OK
    out.note(f"there is no token {token_id}: it has expired, was revoked, or never existed")
    return exit_codes.NOTHING
