"""``bucketq repair``: diagnose a damaged object, or accept a manual edit."""

from __future__ import annotations

from typing import Annotated

from bucketq import admin
from bucketq.cli.opening import open_object
from bucketq.cli.parameters import Url, option
from bucketq.cli.terminal import exit_codes
from bucketq.cli.terminal.output import Output, counted_jobs, plain


async def run(
    out: Output,
    *,
    url: Url,
    accept: Annotated[bool, option("--accept", "Accept the object as it is.")] = False,
) -> int:
    """Diagnose a damaged object, or accept it after a manual edit.

    With --accept the object is checked and given a new checksum. A copy of the damaged object is
    kept first, under the name *.broken-TIME. An object that is truncated or inconsistent cannot be
    accepted: use `restore` with a copy. Exit code 6: the object is still damaged.

    Examples:
        bucketq repair file:///srv/jobs/queue.json
        bucketq repair file:///srv/jobs/queue.json --accept
    """
    async with open_object(url, out.timeout_s) as target:
        found = await admin.repair(target, accept=accept)
    if found.problem is None:
        out.done(f"{target.url} is intact: nothing to repair", plain(found))
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
