"""Lists of jobs, printed page by page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from msgspec import Raw

from bucketq.cli.parameters import option
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import PayloadError
from bucketq.model.operations import Snapshot
from bucketq.model.records import Encoding, Progress
from bucketq.model.side_objects import is_side, read_ref
from bucketq.queue.job import Job, JobPage
from bucketq.queue.queue import Queue

After = Annotated[
    int, option("--after N", "Continue after this number, which the previous page printed.", min=0)
]

# Jobs per request: bounds memory, and lets the first page be printed before the last is read.
_PAGE = 1000


class PastJobs:
    """The jobs of an earlier version, which are in memory."""

    def __init__(self, past: Snapshot) -> None:
        """List the jobs of a version."""
        self._past = past

    async def jobs(
        self,
        *,
        after: int,
        limit: int,
        statuses: Sequence[str] | None = None,
        kinds: Sequence[str] | None = None,
        tags: dict[str, str] | None = None,
        groups: Sequence[str] | None = None,
        batch_id: str = "",
    ) -> JobPage[Any]:
        """Return a page of the jobs that match."""
        found = [
            Job[Any](job, Any)
            for job in self._past.jobs
            if job.seq > after
            and (not statuses or job.status in statuses)
            and (not kinds or job.kind in kinds)
            and (not groups or job.group in groups)
            and (not batch_id or job.batch_id == batch_id)
            and (tags or {}).items() <= (job.tags or {}).items()
        ]
        page = found[:limit]
        return JobPage(tuple(page), page[-1].record.seq if len(found) > limit else None)


async def list_jobs(
    out: Output,
    queue: Queue[Any] | PastJobs,
    columns: Sequence[Column],
    row_of: Callable[[Job[Any]], Sequence[object]],
    *,
    limit: int | None,
    after: int | None,
    **query: Any,
) -> None:
    """Print jobs page by page as they arrive; all of them if ``limit`` is None."""
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
    if after is not None:
        out.note(f"there are more: --after {after}")


def describe_body(raw: Raw, encoding: Encoding | None) -> str | None:
    """The size of a payload or result that is not in its job; None if it is."""
    if not is_side(encoding):
        return None
    try:
        ref = read_ref(raw, "it")
    except PayloadError as error:
        return str(error)  # The other jobs are listed all the same.
    return f"{ref.bytes:,} bytes in the side object {ref.object}"


def last_error(job: Job[Any]) -> str:
    """The first line of the last error of a job."""
    return job.errors[-1].error.partition("\n")[0] if job.errors else ""


def describe_progress(progress: Progress) -> str:
    """How far a job has come, like ``40/100 frames (40%)``."""
    done, total = f"{progress.done:g}", progress.total
    words = [done if total is None else f"{done}/{total:g}", progress.note]
    if total:
        words.append(f"({100 * progress.done / total:.0f}%)")
    return " ".join(filter(None, words))
