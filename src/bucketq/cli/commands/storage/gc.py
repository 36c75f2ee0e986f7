"""``bucketq gc``: delete segments that a queue no longer needs."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, Yes, option
from bucketq.cli.terminal.output import Output, counted, plain
from bucketq.cli.terminal.user_input import confirmed


async def run(
    out: Output,
    *,
    url: Url,
    incarnation: Annotated[
        str | None,
        option("--incarnation ID", "Delete all segments of this incarnation of the queue."),
    ] = None,
    yes: Yes = False,
) -> int:
    """Delete segments that a deep queue no longer needs.

    Processes that keep the queue open do this by themselves, once an hour. A segment is deleted
    only if no version of the queue can name it any more; workers may continue. Large payloads and
    results that no job and no line of the archive names are deleted, too.

    A restore that was killed leaves segments of an incarnation that never began. `doctor --deep`
    lists it, and --incarnation deletes them, after asking for confirmation. Be sure that no restore
    is running. The present incarnation of the queue is refused.

    Examples:
        bucketq gc s3://bucket/jobs/queue.json
        bucketq gc s3://bucket/jobs/queue.json --incarnation 01KG9MFMM0C83BST5GD08927D6
    """
    async with open_object(url, out.timeout_s) as target:
        if incarnation is None:
            swept = await admin.sweep(target)
            payloads = f", and {counted(swept.payloads, 'large payload')} that no job names"
            former = f", and {swept.former_segments:,} of former incarnations"
            out.done(
                f"deleted {counted(swept.segments, 'segment')} of {target.url}"
                f"{former if swept.former_segments else ''}"
                f"{payloads if swept.payloads else ''}",
                plain(swept),
            )
            return 0
        count = await admin.count_segments(target, incarnation)
        what = f"delete {counted(count, 'segment')} of incarnation {incarnation} of {target.url}"
        if count and not yes and not confirmed(out, what):
            return 1
        deleted = await admin.clear_incarnation(target, incarnation)
    out.done(
        f"deleted {counted(deleted, 'segment')} of incarnation {incarnation}",
        {"segments": deleted, "incarnation": incarnation},
    )
    return 0
