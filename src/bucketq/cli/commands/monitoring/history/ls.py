"""``bucketq history ls``: list what changed a queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url, option
from bucketq.cli.past_versions import parse_version_or_time
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import HistoryGapError
from bucketq.model.job_ids import ID_LENGTH
from bucketq.queue.change import Change
from bucketq.queue.queue import Queue

_COLUMNS = (
    Column("VERSION", right=True),
    Column("AT"),
    Column("REQUEST", usual=14),
    Column("JOBS", right=True, drop=2),
    Column("FIRST JOB", drop=3, usual=ID_LENGTH),
    Column("BY", flexible=True, drop=1),
)


async def run(
    out: Output,
    *,
    url: Url,
    since: Annotated[
        str,
        option("--since VERSION|TIME", "Start: versions after 1200, 2h (ago), or a time."),
    ] = "1h",
    job: Annotated[str | None, option("--job JOB", "Only what changed this job.")] = None,
    limit: Annotated[int, option("--limit -n", "Maximum number of versions.", min=1)] = 1000,
    follow: Annotated[bool, option("--follow -f", "Wait for new versions.")] = False,
) -> None:
    """List the versions of a queue, with the requests that made them.

    The oldest comes first. With --json each version is one line, with all fields that it changed.

    Examples:
        bucketq history file:///srv/jobs/queue.json --since 15m
        bucketq history file:///srv/jobs/queue.json --since 1200 --job 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq history file:///srv/jobs/queue.json --follow --json | jq .requests
    """
    table = None if out.json else out.table(_COLUMNS)
    listed = 0
    async with open_queue(url, out.timeout_s) as queue:
        after = await _version_before(queue, parse_version_or_time(since, "--since"))
        async for change in queue.changes(after, follow=follow):
            if job is not None and not _concerns(change, job):
                continue
            if listed == limit and not follow:
                out.note(f"there are more: --since {change.version - 1}")
                return
            listed += 1
            if table is None:
                out.value(change)
            else:
                table.write(_rows(change, job))


async def _version_before(queue: Queue[Any], since: int | datetime) -> int | None:
    """Return the version after which to begin; None: with the first one."""
    if isinstance(since, int):
        return since
    try:
        return await queue.version_at(since)
    except HistoryGapError:
        return None  # All of it happened later.


def _concerns(change: Change, job: str) -> bool:
    gone = {name for name, _ in change.gone}
    return job in gone or any(each.id == job for each in change.jobs)


def _rows(change: Change, job: str | None) -> Iterator[tuple[object, ...]]:
    """Yield a row for each request; a version without one has only moved rows."""
    requests = [each for each in change.requests if job is None or job in each.jobs]
    if not requests:
        yield (change.version, change.at, "-", 0, "", "")
    for request in requests:
        first = job or next(iter(request.jobs), "")
        yield (change.version, change.at, request.verb, len(request.jobs), first, request.by)
