"""``bucketq audit``: show what operators did to a queue."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url, option
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column

_COLUMNS = (
    Column("AT"),
    Column("ACTION"),
    Column("BY", drop=1),
    Column("COUNT", right=True, drop=2),
    Column("ABOUT", flexible=True),
)
COMMANDS = {
    "canceljobs": "cancel",
    "setpriority": "priority",
    "configure": "config",
    "granttoken": "token create",
    "revoketoken": "token revoke",
    "setschedule": "schedule add",
    "removeschedule": "schedule rm",
    "pauseschedule": "schedule pause",
    "resumeschedule": "schedule resume",
    "runschedule": "schedule run",
    "setlimit": "limit set",
    "removelimit": "limit rm",
    "removeconsumer": "consumer remove",
    "forgethistory": "history purge",
    "accept-loss": "repair --accept-loss",
}
"""The commands of actions that have another name."""


async def run(
    out: Output,
    *,
    url: Url,
    limit: Annotated[
        int | None, option("--limit -n", "Only the latest so many actions.", min=1)
    ] = None,
) -> None:
    """List what operators did to a queue: who, when, and to what.

    The oldest action comes first. The queue keeps the last 1,000 (setting max_audit), whether or
    not it has a history. What the same operator repeats within a minute is one line. BY is the id
    of a token, or the user and host of a process that wrote the object itself. Through a broker
    that asks for tokens this needs the right admin. Actions are named after the commands that do
    the same; with --json, "action" has the name that the queue keeps, as queue.audit() returns it.

    Examples:
        bucketq audit s3://bucket/jobs/queue.json
        bucketq audit s3://bucket/jobs/queue.json --json | jq 'select(.command == "config")'
    """
    async with open_queue(url, out.timeout_s) as queue:
        actions = await queue.audit(limit=limit)
    rows = [
        structs.asdict(each) | {"command": COMMANDS.get(each.action, each.action)}
        for each in actions
    ]
    out.records([*_COLUMNS], rows, _cells)


def _cells(row: dict[str, Any]) -> list[object]:
    return [row["at"], row["command"], row["by"], row["count"] or "", ", ".join(row["about"])]
