"""``bucketq restore``: restore a queue from a copy."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import address_of, open_object
from bucketq.cli.parameters import Url, argument, option
from bucketq.cli.parsing import STDIN, read_bytes
from bucketq.cli.terminal.output import Output, counted_jobs, plain


async def run(
    out: Output,
    *,
    url: Url,
    source: Annotated[
        str, argument("FILE", "A saved copy: a file, - for stdin, or the address of an object.")
    ],
    replace: Annotated[bool, option("--replace", "Replace the existing queue.")] = False,
) -> None:
    """Restore a queue from a saved copy.

    The queue becomes a new incarnation: processes that use it are disconnected and must connect
    again, and jobs that were running are queued again. Changes made after the copy are lost: jobs
    finished since then run again, jobs pushed since then are missing. With --replace the existing
    object is kept under the name *.replaced-TIME or *.broken-TIME.

    Examples:
        bucketq restore s3://bucket/jobs/queue.json queue-monday.json
        bucketq restore file:///srv/jobs/queue.json queue-monday.json --replace
    """
    async with AsyncExitStack() as stack:
        payloads = None
        if source != STDIN:
            opening = open_object(address_of(source), out.timeout_s, is_copy=True)
            other = await stack.enter_async_context(opening)
            payloads = admin.folder_of_queue(other)
        body = (await admin.backup(other)).body if "://" in source else read_bytes(Path(source))
        target = await stack.enter_async_context(open_object(url, out.timeout_s))
        restored = await admin.restore(target, body, overwrite=replace, payloads=payloads)
    summary = restored.summary
    out.done(
        f"restored {target.url} at version {summary.version:,}: {counted_jobs(summary.jobs)}, "
        f"{restored.released:,} of them were running",
        plain(restored),
    )
    if restored.saved:
        out.note(f"the previous object is kept as {restored.saved}")
    if restored.lost_payloads:
        out.note(
            f"{restored.lost_payloads:,} large payloads or results were found neither beside the "
            "copy nor beside the queue; their jobs will fail (`bucketq doctor --deep` lists them)"
        )
    if restored.refusal:
        out.note(f"the object is large, because {restored.refusal}")
    if restored.kept_incarnation:
        out.note(
            "the previous queue could not be copied as a whole, so its segments are kept; when "
            "they are not needed any more: bucketq gc --incarnation "
            f"{restored.kept_incarnation}"
        )
