"""``bucketq config``: show or change settings."""

from __future__ import annotations

from typing import Annotated

import msgspec

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument
from bucketq.cli.parsing import parse_settings
from bucketq.cli.terminal.output import Output, plain
from bucketq.cli.terminal.text_table import Column
from bucketq.model.settings import Settings


async def run(
    out: Output,
    *,
    url: Url,
    changes: Annotated[
        list[str] | None, argument("NAME=VALUE", "Settings to change; shows all if omitted.")
    ] = None,
    request: Request = None,
) -> None:
    """Show or change the settings of a queue.

    The settings are part of the queue and apply to all processes that use it.

    Examples:
        bucketq config file:///srv/jobs/queue.json
        bucketq config file:///srv/jobs/queue.json lease_s=60 heartbeat_s=10
        bucketq config file:///srv/jobs/queue.json 'backoff={"base_s": 5, "max_s": 600}'
    """
    wanted = parse_settings(changes)
    async with open_queue(url, out.timeout_s) as queue:
        if wanted:
            settings = await queue.configure(request=request, **wanted)
        else:
            settings = await queue.settings()
    values = {name: plain(getattr(settings, name)) for name in Settings.__struct_fields__}
    if out.json:
        out.value(values)
        return
    shown = {name: value for name, value in values.items() if not wanted or name in wanted}
    defaults = {name: plain(getattr(Settings(), name)) for name in values}
    if wanted and out.quiet:
        return
    out.table(
        [Column("SETTING"), Column("VALUE"), Column("DEFAULT")],
        (
            (name, _spelled(value), "" if value == defaults[name] else _spelled(defaults[name]))
            for name, value in shown.items()
        ),
    )


def _spelled(value: object) -> str:
    if isinstance(value, dict | bool):
        return msgspec.json.encode(value).decode()
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else f"{value}"  # noqa: PLR2004 - beyond it "g" loses digits
