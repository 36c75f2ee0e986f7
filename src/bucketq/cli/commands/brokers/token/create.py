"""``bucketq token create``: create an access token."""

from __future__ import annotations

from typing import Annotated, cast

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, option
from bucketq.cli.parsing import parse_duration
from bucketq.cli.terminal.output import Output
from bucketq.model.tokens import RIGHTS, Right, parse_token

Name = Annotated[str, option("--name NAME", "Name for people; it need not be unique.")]

Rights = Annotated[
    str,
    option(
        "--rights RIGHTS",
        f"Rights, separated by commas: {', '.join(RIGHTS)} (which includes all others).",
    ),
]


async def run(
    out: Output,
    *,
    url: Url,
    name: Name,
    rights: Rights,
    ttl: Annotated[
        str | None, option("--ttl DURATION", "How long it is valid, like 90d; forever by default.")
    ] = None,
    request: Request = None,
) -> None:
    """Create a token and print it once. The object keeps only a digest of it.

    From the first token on, the brokers of the queue serve only clients that present one.

    Examples:
        bucketq token create s3://bucket/jobs/queue.json --name ci --rights push --ttl 90d
        bucketq token create s3://bucket/jobs/queue.json --name workers --rights claim,read
        bucketq token create s3://bucket/jobs/queue.json --name ops --rights admin
    """
    ttl_s = None if ttl is None else parse_duration(ttl, "--ttl")
    wanted = cast("list[Right]", [right.strip() for right in rights.split(",")])
    out.after_interrupt = "check `bucketq token list`, and revoke a token that was not printed"
    async with open_queue(url, out.timeout_s) as queue:
        # Checked first: afterwards a broker may require the new token for these requests.
        is_required = (await queue.settings()).require_token or not await queue.tokens()
        token = await queue.create_token(name, wanted, ttl_s=ttl_s, request=request)
    out.result(token, {"id": parse_token(token), "token": token})
    note = "store it safely: it is not shown again"
    if is_required:
        note += "; from now on the brokers of this queue require a token"
    out.note(note)
