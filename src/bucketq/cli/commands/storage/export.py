"""``bucketq export``: write a queue as one text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from bucketq import admin
from bucketq.cli.file_writing import write_file
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, argument, option
from bucketq.cli.parsing import STDIN
from bucketq.cli.terminal.output import Output, counted_jobs, plain, size


async def run(
    out: Output,
    *,
    url: Url,
    target: Annotated[str, argument("FILE", "A file; stdout if omitted.")] = STDIN,
    force: Annotated[bool, option("--force -f", "Overwrite the file.")] = False,
) -> None:
    """Write a queue with all its jobs to a file or stdout, in format 1.

    Of a deep queue the object holds only some of the jobs; this reads the others from its segments.
    It is one consistent version; workers may continue. The text has the settings of the queue, one
    job per line, and can be restored. It does not include the archive.

    Examples:
        bucketq export s3://bucket/jobs/queue.json | grep '"kind":"email"' | wc -l
        bucketq export s3://bucket/jobs/queue.json queue.json
    """
    async with open_object(url, out.timeout_s) as source:
        copy = await admin.backup(source)
    if target == STDIN:
        for chunk in copy.chunks():
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    write_file(Path(target), copy.chunks(), overwrite=force)
    summary = copy.summary
    out.done(
        f"wrote version {summary.version:,} ({counted_jobs(summary.jobs)}, "
        f"{size(copy.size_bytes)}) to {target}",
        plain(summary) | {"saved": target},
    )
