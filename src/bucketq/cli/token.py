"""``bucketq token``: who may talk to the brokers of a queue, and what each may do."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from bucketq.cli import exits
from bucketq.cli.options import Request, Url, opened, parse_duration
from bucketq.cli.output import Output
from bucketq.cli.table import Column
from bucketq.model.tokens import RIGHTS, Right, parse_token

Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="What people call it; it may come twice.")
]
Rights = Annotated[
    str,
    typer.Option(
        "--rights",
        metavar="RIGHTS",
        help=f"What it allows, separated by commas: {', '.join(RIGHTS)} (which is all of them).",
    ),
]
TokenId = Annotated[
    str,
    typer.Argument(metavar="ID", help="The token's id, as `list` shows it.", show_default=False),
]


async def create(
    out: Output,
    *,
    url: Url,
    name: Name,
    rights: Rights,
    ttl: Annotated[
        str | None,
        typer.Option(
            "--ttl", metavar="DURATION", help="How long it is good, like 90d; by default for ever."
        ),
    ] = None,
    request: Request = None,
) -> None:
    """Make a token and print it, this once. The object keeps only a digest of it.

    From the first token on, the brokers of the queue serve only clients that show one.

    Examples:
        bucketq token create s3://bucket/jobs/queue.json --name ci --rights push --ttl 90d
        bucketq token create s3://bucket/jobs/queue.json --name workers --rights claim,read
        bucketq token create s3://bucket/jobs/queue.json --name ops --rights admin
    """
    ttl_s = None if ttl is None else parse_duration(ttl, "--ttl")
    wanted = cast("list[Right]", [right.strip() for right in rights.split(",")])
    out.after_interrupt = "see `bucketq token list`, and revoke a token that nobody has read"
    async with opened(url, out.timeout_s) as queue:
        # Afterwards a broker may ask for the token that was just made.
        is_required = (await queue.config()).require_token or not await queue.tokens()
        token = await queue.create_token(name, wanted, ttl_s=ttl_s, request=request)
    out.result(token, {"id": parse_token(token), "token": token})
    note = "keep it in a safe place: it is not shown again"
    if is_required:
        note += "; from now on the brokers of this queue ask for a token"
    out.note(note)


async def list_tokens(out: Output, *, url: Url) -> None:
    """List the tokens that are good. The tokens themselves are nowhere.

    Examples:
        bucketq token list s3://bucket/jobs/queue.json
        bucketq token list s3://bucket/jobs/queue.json --json
    """
    async with opened(url, out.timeout_s) as queue:
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


async def revoke(out: Output, *, url: Url, token_id: TokenId, request: Request = None) -> int:
    """Take a token back. Brokers go on asking for tokens, even after the last one.

    Examples:
        bucketq token revoke s3://bucket/jobs/queue.json 4f1e09ab
        bucketq config s3://bucket/jobs/queue.json require_token=false
    """
    async with opened(url, out.timeout_s) as queue:
        was_there = await queue.revoke_token(token_id, request=request)
    if was_there:
        out.done(f"token {token_id} is revoked", {"id": token_id, "revoked": True})
        return exits.OK
    if out.json:
        out.value({"id": token_id, "revoked": False})
    out.note(f"there is no token {token_id}: it has expired, was revoked before, or never was")
    return exits.NOTHING
