"""``bucketq delete``."""

from __future__ import annotations

from typing import Annotated

import typer

from bucketq import admin
from bucketq.admin.place import summarize
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, Yes
from bucketq.cli.queue_summary import describe_jobs
from bucketq.cli.terminal.output import Output, counted, moment, size
from bucketq.cli.terminal.prompt import confirmed
from bucketq.codec import decode
from bucketq.errors import CorruptStateError

_TRIES = 20


async def run(
    out: Output,
    *,
    url: Url,
    archive: Annotated[bool, typer.Option("--archive", help="Its archive as well.")] = False,
    yes: Yes = False,
) -> int:
    """Delete a queue, with all jobs in it. It asks first.

    Only what was shown is deleted: if the queue has changed by the time you answer, nothing
    is. Whoever is using it is told that it is gone, and nobody creates it again from memory.

    Examples:
        bucketq delete file:///srv/jobs/queue.json
        bucketq delete file:///srv/jobs/queue.json --archive --yes
    """
    async with open_object(url, out.timeout_s) as place:
        for left in reversed(range(_TRIES)):
            seen = await admin.look(place)
            what = f"delete {place.where}: {_describe(seen.body, place.where)}"
            if not yes and not confirmed(out, what):
                return 1
            try:
                segments = await admin.delete(place, seen, archive=archive)
            except admin.ChangedMeanwhileError:
                if not yes or not left:
                    raise
            else:
                break
    with_archive = f", and {counted(segments, 'archive segment')}" if archive else ""
    out.done(f"deleted {place.where}{with_archive}", {"deleted": place.where, "segments": segments})
    return 0


def _describe(body: bytes, where: str) -> str:
    try:
        summary = summarize(decode(body, where).state)
    except CorruptStateError:
        return f"it cannot be read as a queue, {size(len(body))}"
    since = moment(summary.created_at)
    return f"{describe_jobs(summary)}, {size(len(body))}, in use since {since}"
