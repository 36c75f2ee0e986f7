"""``bucketq create``: create a queue."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, argument
from bucketq.cli.parsing import parse_settings
from bucketq.cli.segment_access import refused_segments
from bucketq.cli.terminal.output import Output, plain


async def run(
    out: Output,
    *,
    url: Url,
    settings: Annotated[list[str] | None, argument("NAME=VALUE", "Initial settings.")] = None,
) -> None:
    """Create an empty queue. An existing queue is left unchanged (exit code 4).

    The first push also creates a queue; use this to create one with other settings. It tries
    whether the store lets the queue keep segments, and warns if not; the queue works without.

    Examples:
        bucketq create file:///srv/jobs/queue.json
        bucketq create s3://bucket/jobs/queue.json lease_s=60 heartbeat_s=10
    """
    wanted = parse_settings(settings)
    async with open_object(url, out.timeout_s) as target:
        summary = await admin.create(target, wanted)
        out.done(f"created {target.url} (incarnation {summary.incarnation})", plain(summary))
        if (warning := await refused_segments(target)) is not None:
            out.note(f"warning: {warning}")
