"""``bucketq delete``: delete a queue."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_partitions
from bucketq.cli.parameters import Url, Yes, option
from bucketq.cli.terminal.output import Output, counted, counted_jobs, moment, plain, size
from bucketq.cli.terminal.user_input import confirmed
from bucketq.codec.decode import decode
from bucketq.errors import CorruptStateError

# With --yes: how often to try if other processes keep changing the queue; a pause is better then.
_TRIES = 20


async def run(
    out: Output,
    *,
    url: Url,
    archive: Annotated[bool, option("--archive", "Delete its archive as well.")] = False,
    yes: Yes = False,
) -> int:
    """Delete a queue and all its jobs. Asks for confirmation.

    Only the version that was shown is deleted: if the queue changes before you answer, nothing is
    deleted. Processes that use the queue get an error, and none of them recreates it. If it is
    interrupted, run it again, or create a queue in its place.

    Examples:
        bucketq delete file:///srv/jobs/queue.json
        bucketq delete file:///srv/jobs/queue.json --archive --yes
    """
    async with open_partitions(url, out.timeout_s) as (target, *others):
        seen = await target.read()
        more_objects = f" and {counted(len(others), 'other partition')}" if others else ""
        for left in reversed(range(_TRIES)):
            what = f"delete {target.url}{more_objects}: {_describe(seen.body, target.url)}"
            if not yes and not confirmed(out, what):
                return 1
            for other in others:  # First, because this object says how many there are.
                await _delete_partition(other, archive=archive)
            try:
                deleted = await admin.delete(target, seen, archive=archive)
            except admin.ChangedMeanwhileError:
                if not yes or not left:
                    raise
                seen = await target.read()
            else:
                break
    more = [counted(deleted.segments, "segment")] if deleted.segments else []
    if archive or deleted.archive_files:
        more.append(counted(deleted.archive_files, "archive file"))
    out.done(
        f"deleted {target.url}{', and ' if more else ''}{' and '.join(more)}",
        {"deleted": target.url} | plain(deleted),
    )
    return 0


async def _delete_partition(target: admin.QueueObject, *, archive: bool) -> None:
    """Delete a partition whatever it holds, if it is there."""
    for left in reversed(range(_TRIES)):
        seen = await target.find()
        if seen is None:
            return
        try:
            await admin.delete(target, seen, archive=archive)
        except admin.ChangedMeanwhileError:
            if not left:
                raise


def _describe(body: bytes, url: str) -> str:
    try:
        summary = admin.summarize(decode(body, url).state)
    except CorruptStateError:
        return f"not a readable queue, {size(len(body))}"
    since = moment(summary.created_at)
    return f"{counted_jobs(summary.jobs)}, {size(len(body))}, in use since {since}"
