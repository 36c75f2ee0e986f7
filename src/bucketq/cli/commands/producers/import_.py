"""``bucketq import``: push jobs from a file or another queue."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Annotated

from bucketq.cli.bulk.feed_pusher import Plan, push_feed, push_lines
from bucketq.cli.bulk.feeds import Defaults, QueueFeed
from bucketq.cli.bulk.progress_file import SUFFIX
from bucketq.cli.commands.producers.push import Batch, ProgressPath, Restart
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Kinds, Url, argument, option
from bucketq.cli.terminal.output import Output
from bucketq.errors import InvalidRequestError
from bucketq.model.records import STATUSES


async def run(
    out: Output,
    *,
    url: Url,
    source: Annotated[
        str,
        argument("SOURCE", "A file of JSON lines, - for stdin, or the address of another queue."),
    ],
    kinds: Kinds = None,
    statuses: Annotated[
        list[str] | None, option("--status -s", "Only jobs with this status; queued by default.")
    ] = None,
    batch: Batch = None,
    progress: ProgressPath = None,
    restart: Restart = False,
) -> int:
    """Push jobs from a file or another queue.

    A line of a file is a job in the format of `push --bulk`, or as printed by `ls --json` and
    `archive cat`. Jobs of another queue are copied from one consistent snapshot, with their ids.
    They also stay in that queue, so pause it first. Run times, priorities, keys and tags are
    copied; attempts and errors are not.

    Like a bulk push, an import can be interrupted and resumed. For another queue the progress file
    is in the current directory, and running the command again copies the jobs pushed since.

    Examples:
        bucketq import s3://bucket/jobs/queue.json jobs.jsonl
        bucketq import s3://bucket/jobs/queue.json file:///srv/jobs/queue.json --kind email
        bucketq ls file:///old.json --all --json | bucketq import file:///new.json -
    """
    chosen = tuple(statuses or ("queued",))
    for status in chosen:
        if status not in STATUSES:
            raise InvalidRequestError(f"unknown status {status!r}; use {', '.join(STATUSES)}")
    defaults = Defaults(kinds=tuple(kinds or ()), statuses=chosen)
    if "://" not in source:
        return await push_lines(out, Plan(url, defaults, progress, restart, batch), Path(source))
    if source == url:
        raise InvalidRequestError("source and target are the same queue")
    async with open_queue(source, out.timeout_s, reads_all=True) as other:
        feed = QueueFeed(source, await other.snapshot(), defaults, other)
        plan = Plan(url, defaults, progress or _progress_of(source, url, defaults), restart, batch)
        return await push_feed(out, plan, lambda _: feed)


def _progress_of(source: str, url: str, defaults: Defaults) -> Path:
    name = blake2b(f"{source} {url} {defaults.choice}".encode(), digest_size=6).hexdigest()
    return Path(f"import-{name}{SUFFIX}")
