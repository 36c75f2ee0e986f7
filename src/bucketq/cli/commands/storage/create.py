"""``bucketq create``: create a queue."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_partitions
from bucketq.cli.parameters import Url, argument
from bucketq.cli.parsing import parse_settings
from bucketq.cli.segment_access import refused_segments
from bucketq.cli.terminal.output import Output, counted, plain
from bucketq.model.partitions import Partition
from bucketq.store.url import split_partitions


async def run(
    out: Output,
    *,
    url: Url,
    settings: Annotated[list[str] | None, argument("NAME=VALUE", "Initial settings.")] = None,
) -> None:
    """Create an empty queue. An existing queue is left unchanged (exit code 4).

    The first push also creates a queue; use this to create one with other settings. It tries
    whether the store lets the queue keep segments, and warns if not; the queue works without.
    A queue with partitions is spread over so many objects, each with a broker that leads it.

    Examples:
        bucketq create file:///srv/jobs/queue.json
        bucketq create s3://bucket/jobs/queue.json lease_s=60 heartbeat_s=10
        bucketq create 's3://bucket/jobs/queue.json?partitions=8'
    """
    wanted = parse_settings(settings)
    _, count = split_partitions(url)
    async with open_partitions(url, out.timeout_s) as targets:
        target = targets[0]
        first = None if count is None else Partition(0, count)
        summary = await admin.create(target, wanted, first)
        for index, other in enumerate(targets[1:], 1):
            part = Partition(index, len(targets), summary.incarnation)
            await admin.create(other, wanted, part)
        parts = "" if count is None else f", {counted(count, 'partition')}"
        out.done(f"created {target.url} (incarnation {summary.incarnation}{parts})", plain(summary))
        if (warning := await refused_segments(target)) is not None:
            out.note(f"warning: {warning}")
