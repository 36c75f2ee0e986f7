"""``bucketq restore``: restore a queue from a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, argument, option
from bucketq.cli.parsing import read_bytes
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
    if "://" in source:
        async with open_object(source, out.timeout_s) as other:
            body = (await admin.backup(other)).body
    else:
        body = read_bytes(Path(source))
    async with open_object(url, out.timeout_s) as target:
        restored = await admin.restore(target, body, overwrite=replace)
    summary = restored.summary
    out.done(
        f"restored {target.url} at version {summary.version:,}: {counted_jobs(summary.jobs)}, "
        f"{restored.released:,} of them were running",
        plain(restored),
    )
    if restored.saved:
        out.note(f"the previous object is kept as {restored.saved}")
    if restored.refusal:
        out.note(f"the object is large, because {restored.refusal}")
    if restored.kept_incarnation:
        out.note(
            "the previous queue could not be copied as a whole, so its segments are kept; when "
            "they are not needed any more: bucketq gc --incarnation "
            f"{restored.kept_incarnation}"
        )
