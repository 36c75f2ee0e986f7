"""Lists of jobs, printed page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column
from bucketq.queue.base import Queue
from bucketq.queue.job import Job

Limit = Annotated[int, typer.Option("--limit", "-n", help="At most so many jobs.", min=1)]

After = Annotated[
    int,
    typer.Option("--after", metavar="N", help="Go on behind this number; a page tells it.", min=0),
]

_PAGE = 1000


async def list_jobs(
    out: Output,
    queue: Queue[Any],
    columns: Sequence[Column],
    row_of: Callable[[Job[Any]], Sequence[object]],
    *,
    limit: int | None,
    after: int | None,
    **query: Any,
) -> None:
    """List jobs page by page, each when it has come; without a limit all of them."""
    table = out.table(columns)
    listed = 0
    while after is not None and (limit is None or listed < limit):
        size_of_page = _PAGE if limit is None else min(_PAGE, limit - listed)
        page = await queue.jobs(after=after, limit=size_of_page, **query)
        after = page.next_after
        listed += len(page.jobs)
        if out.json:
            for job in page.jobs:
                out.value(job.record)
        else:
            table.write(map(row_of, page.jobs))
    _tell_more(out, after)


def last_error(job: Job[Any]) -> str:
    """The first line of the last error of a job."""
    return job.errors[-1].error.partition("\n")[0] if job.errors else ""


def _tell_more(out: Output, after: int | None) -> None:
    if after is not None:
        out.note(f"there are more: --after {after}")
