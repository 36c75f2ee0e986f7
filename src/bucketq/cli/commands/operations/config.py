"""``bucketq config``: show or change settings."""

from __future__ import annotations

from typing import Annotated

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Request, Url, argument
from bucketq.cli.parsing import parse_settings
from bucketq.cli.setting_table import print_settings
from bucketq.cli.terminal.output import Output, plain
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
    if out.json:
        out.value({name: plain(getattr(settings, name)) for name in Settings.__struct_fields__})
    elif not (wanted and out.quiet):
        print_settings(out, settings, wanted)
