"""``bucketq repair``: diagnose a damaged object, or accept a manual edit."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, option
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output, counted, counted_jobs, plain
from bucketq.errors import InvalidRequestError


async def run(
    out: Output,
    *,
    url: Url,
    accept: Annotated[bool, option("--accept", "Accept the object as it is.")] = False,
    accept_loss: Annotated[
        list[str] | None,
        option("--accept-loss SEGMENT|all", "Give up what cannot be read of a segment, or of all."),
    ] = None,
) -> int:
    """Diagnose a damaged object, or accept it after a manual edit.

    With --accept the object is checked and given a new checksum. A copy of the damaged object is
    kept first, under the name *.broken-TIME. An object that is truncated or inconsistent cannot be
    accepted: use `restore` with a copy. Exit code 6: the object is still damaged.

    Segments are checked by `doctor --deep`. With --accept-loss, jobs that are in a missing or
    damaged segment and cannot be read are given up; what can be read of it stays in the queue.
    A copy of all that can be read is kept first, under the name *.broken-TIME.

    Examples:
        bucketq repair file:///srv/jobs/queue.json
        bucketq repair file:///srv/jobs/queue.json --accept
        bucketq repair file:///srv/jobs/queue.json --accept-loss all
    """
    if accept and accept_loss:
        raise InvalidRequestError("use --accept first, then --accept-loss")
    async with open_object(url, out.timeout_s) as target:
        if accept_loss:
            return await _accept_loss(out, target, accept_loss)
        found = await admin.repair(target, accept=accept)
    if found.problem is None:
        out.done(f"{target.url} is intact: nothing to repair", plain(found))
        if found.segments:
            out.note(
                f"only the object was checked, not its {counted(found.segments, 'segment')}: "
                "`bucketq doctor URL --deep` reads all"
            )
        return exit_codes.OK
    jobs = counted_jobs(found.summary.jobs) if found.summary else ""
    if found.saved is not None and found.summary is not None:
        out.done(f"accepted as version {found.summary.version:,}: {jobs}", plain(found))
        out.note(f"the damaged object is kept as {found.saved}")
        return exit_codes.OK
    advice = f"it can be accepted as it is ({jobs}): bucketq repair --accept"
    if found.refusal is not None:
        advice = (
            f"it cannot be accepted as it is ({found.refusal}): restore a copy with bucketq "
            "restore --replace"
        )
    out.result(f"{target.url}: {found.problem}\n{advice}", plain(found))
    return exit_codes.CORRUPT


async def _accept_loss(out: Output, target: admin.QueueObject, chosen: list[str]) -> int:
    done = await admin.accept_loss(target, None if chosen == ["all"] else chosen)
    report = plain(done) | {"lost": done.lost}
    if not done.segments:
        out.done("every segment can be read: nothing was given up", report)
        return exit_codes.OK
    out.done(
        f"gave up {counted(done.lost, 'row')} of {counted(len(done.segments), 'segment')}; "
        f"version {done.summary.version:,} has {counted_jobs(done.summary.jobs)}",
        report,
    )
    out.note(f"what could be read before is kept as {done.saved}")
    if done.doubtful is not None:
        out.note(
            f"jobs that may have finished before, or not, are kept as {done.doubtful}; `bucketq "
            "import` pushes them again"
        )
    return exit_codes.OK
