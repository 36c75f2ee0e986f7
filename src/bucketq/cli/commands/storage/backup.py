"""``bucketq backup``: save a copy of a queue."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

from bucketq import admin
from bucketq.cli.file_writing import write_file
from bucketq.cli.opening import address_of, open_object
from bucketq.cli.parameters import Url, argument, option
from bucketq.cli.terminal.output import Output, counted_jobs, plain, size


async def run(
    out: Output,
    *,
    url: Url,
    target: Annotated[str, argument("FILE", "A file, or the address of an object.")],
    force: Annotated[bool, option("--force -f", "Overwrite the target.")] = False,
) -> None:
    """Save a verified copy of a queue to a file or an object.

    The copy is one consistent version with all jobs in it, also those in segments; workers may
    continue. It does not include the archive. Large payloads are saved beside it: those of
    monday.json in the folder monday/payloads.

    Examples:
        bucketq backup s3://bucket/jobs/queue.json queue-monday.json
        bucketq backup s3://bucket/jobs/queue.json s3://backups/jobs/monday.json
    """
    address = address_of(target)
    async with open_object(url, out.timeout_s) as source, AsyncExitStack() as stack:
        copy = await admin.backup(source)
        if copy.has_payloads:
            large = admin.large_jobs_in(copy.body)
            other = await stack.enter_async_context(
                open_object(address, out.timeout_s, is_copy=True)
            )
            await admin.save_payloads(source, large, admin.folder_of_queue(other))
        if "://" in target:
            other = await stack.enter_async_context(
                open_object(address, out.timeout_s, is_copy=True)
            )
            await admin.save_to(other, copy, overwrite=force)
        else:
            write_file(Path(target), copy.chunks(), overwrite=force)
    summary = copy.summary
    out.done(
        f"saved version {summary.version:,} ({counted_jobs(summary.jobs)}, "
        f"{size(copy.size_bytes)}) to {target}",
        plain(summary) | {"saved": target},
    )
