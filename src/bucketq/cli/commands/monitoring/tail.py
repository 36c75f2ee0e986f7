"""``bucketq tail``: print what happens to jobs as it is committed."""

from __future__ import annotations

from typing import Annotated, Any

from bucketq.cli.live.job_events import JobEvent, events_of
from bucketq.cli.live.kinds_of_jobs import KindsOfJobs
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kinds, Url, option
from bucketq.cli.past_versions import parse_version_or_time
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.output_pipe import while_read
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import HistoryGapError, UnavailableError
from bucketq.model.job_ids import ID_LENGTH
from bucketq.queue.queue import Queue

_COLUMNS = (
    Column("AT"),
    Column("EVENT", usual=10),
    Column("KIND", usual=10),
    Column("JOB", usual=ID_LENGTH),
    Column("ABOUT", flexible=True),
)


async def run(
    out: Output,
    *,
    url: Url,
    kinds: Kinds = None,
    since: Annotated[
        str | None,
        option(
            "--since VERSION|TIME",
            "Start: versions after 1200, 2h (ago), a time; now by default.",
        ),
    ] = None,
) -> None:
    """Print what happens to jobs as it is committed.

    Events are pushed, claimed, completed, failed, dead, lost, released, snoozed, cancelled, expired
    and others. Every event is printed once and in order, also while brokers are killed and
    replaced. The queue needs a history, which `bucketq config URL history_retention_s=86400`
    switches on. Ctrl-C ends it; the message names the version after which --since continues.

    An attempt that failed is `failed` if the job is retried, and `dead` if it is not; a lease that
    ended without a word of its worker is `lost`. Heartbeats and moves to the archive are not shown.
    With --json each event is one line; payloads and results are not in it.

    Examples:
        bucketq tail file:///srv/jobs/queue.json
        bucketq tail s3://bucket/jobs/queue.json --kind email --json | jq 'select(.event == "dead")'
        bucketq tail s3://bucket/jobs/queue.json --since 15m
    """
    after = None if since is None else parse_version_or_time(since, "--since")
    async with open_queue(url, out.timeout_s) as queue:
        first, incarnation = await _start(queue, after)
        out.after_interrupt = f"--since {first} continues after the last event"
        out.note(f"events after version {first} of {url}; Ctrl-C ends")
        try:
            await while_read(_follow(out, queue, first, incarnation, frozenset(kinds or ())))
        except UnavailableError:
            out.note(out.after_interrupt)
            raise


async def _start(queue: Queue[Any], since: Any) -> tuple[int, str]:
    """Return the version after which to begin, and the incarnation that it is of."""
    found = await queue.history_range()
    if since is None:
        return found.last, found.incarnation
    if isinstance(since, int):
        return since, found.incarnation
    try:
        return await queue.version_at(since), found.incarnation
    except HistoryGapError:
        return found.first - 1, found.incarnation  # All of it happened later.


async def _follow(
    out: Output, queue: Queue[Any], after: int, incarnation: str, wanted: frozenset[str]
) -> None:
    table = None if out.json else out.table(_COLUMNS)
    known = KindsOfJobs(queue)
    async for change in queue.changes(after, incarnation=incarnation):
        events = list(events_of(change))
        await known.fill_in(events)
        shown = [event for event in events if not wanted or event.kind in wanted]
        if table is None:
            for event in shown:
                out.value(event)
        elif shown:
            table.write(map(_cells, shown))
        out.after_interrupt = f"--since {change.version} continues after the last event"


def _cells(event: JobEvent) -> list[object]:
    about = f"attempt {event.attempt}" if event.attempt else ""
    if event.worker:
        about += f", {event.worker}" if about else event.worker
    if event.error:
        about += f": {event.error}"
    if event.paused is not None:
        names = "everything" if event.paused == ("*",) else ", ".join(event.paused)
        about = f"paused now: {names or 'nothing'}" + (f"; by {event.by}" if event.by else "")
    elif not about and event.by:
        about = f"by {event.by}"
    return [event.at, event.event, event.kind or "-", event.job or "-", about]
