"""Commands that take care of the object: create, delete, backup, restore, repair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bucketq import admin
from bucketq.admin.place import summarize
from bucketq.cli import exits
from bucketq.cli.files import write_file
from bucketq.cli.options import Url, Yes, parse_settings, place_of, read_bytes
from bucketq.cli.output import Output, counted, moment, plain, size
from bucketq.cli.prompt import confirmed
from bucketq.codec import decode
from bucketq.errors import CorruptStateError

_TRIES = 20


async def create(
    out: Output,
    *,
    url: Url,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Settings to begin with.", show_default=False),
    ] = None,
) -> None:
    """Create an empty queue. Where there is one already, it is left as it is (exit code 4).

    A queue is also created by the first push to it; this is for beginning with settings.

    Examples:
        bucketq create file:///srv/jobs/queue.json
        bucketq create s3://bucket/jobs/queue.json lease_s=60 heartbeat_s=10
    """
    wanted = parse_settings(settings)
    async with place_of(url, out.timeout_s) as place:
        summary = await admin.create(place, wanted)
        out.done(f"created {place.where} (incarnation {summary.incarnation})", plain(summary))


async def delete(
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
    async with place_of(url, out.timeout_s) as place:
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


async def backup(
    out: Output,
    *,
    url: Url,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file, or the address of an object.", show_default=False
        ),
    ],
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite what is there.")] = False,
) -> None:
    """Save a verified copy of the queue, to a file or an object.

    The copy is one consistent version, and workers need not stop. The archive is not in it.

    Examples:
        bucketq backup s3://bucket/jobs/queue.json queue-monday.json
        bucketq backup s3://bucket/jobs/queue.json s3://backups/jobs/monday.json
    """
    async with place_of(url, out.timeout_s) as place:
        copy = await admin.backup(place)
    if "://" in target:
        async with place_of(target, out.timeout_s) as other:
            await admin.save_to(other, copy, overwrite=force)
    else:
        write_file(Path(target), copy.body, overwrite=force)
    summary = copy.summary
    out.done(
        f"saved version {summary.version:,} ({_jobs(summary)}, {size(len(copy.body))}) to {target}",
        plain(summary) | {"saved": target},
    )


async def restore(
    out: Output,
    *,
    url: Url,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A saved copy: a file, - for stdin, or the address of an object.",
            show_default=False,
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in the place of the queue that is there.")
    ] = False,
) -> None:
    """Bring a saved copy back, as a new incarnation of the queue.

    Processes that use the queue are cut off and have to connect again; jobs that were running in
    the copy wait again. What was done after the copy was made is not in it: jobs that were
    finished since run again, jobs pushed since are missing. With --replace what was there is kept
    beside it, in an object named *.replaced-TIME or *.broken-TIME.

    Examples:
        bucketq restore s3://bucket/jobs/queue.json queue-monday.json
        bucketq restore file:///srv/jobs/queue.json queue-monday.json --replace
    """
    if "://" in source:
        async with place_of(source, out.timeout_s) as other:
            body = (await admin.look(other)).body
    else:
        body = read_bytes(Path(source))
    async with place_of(url, out.timeout_s) as place:
        restored = await admin.restore(place, body, overwrite=replace)
    summary = restored.summary
    out.done(
        f"restored {place.where} at version {summary.version:,}: {_jobs(summary)}, "
        f"{restored.released:,} of them were running",
        plain(restored),
    )
    if restored.saved:
        out.note(f"what was there before is kept as {restored.saved}")


async def repair(
    out: Output,
    *,
    url: Url,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take the object as a person has left it.")
    ] = False,
) -> int:
    """Say what is wrong with the object, or accept it as it is.

    With --accept a hand edit is taken as a person has left it.

    A copy of the broken object is kept beside it first, named *.broken-TIME. What is cut off or
    makes no sense cannot be accepted: `restore` a copy then. Exit code 6: it is still broken.

    Examples:
        bucketq repair file:///srv/jobs/queue.json
        bucketq repair file:///srv/jobs/queue.json --accept
    """
    async with place_of(url, out.timeout_s) as place:
        found = await admin.repair(place, accept=accept)
    if found.problem is None:
        out.done(f"{place.where} is sound: nothing to repair", plain(found))
        return exits.OK
    if found.saved is not None and found.summary is not None:
        out.done(
            f"accepted as version {found.summary.version:,}: {_jobs(found.summary)}", plain(found)
        )
        out.note(f"the broken object is kept as {found.saved}")
        return exits.OK
    if found.refusal is None and found.summary is not None:
        advice = f"it can be accepted as it is ({_jobs(found.summary)}): bucketq repair --accept"
    else:
        advice = (
            f"it cannot be accepted as it is ({found.refusal}): bring back a copy with bucketq "
            "restore --replace"
        )
    out.result(f"{place.where}: {found.problem}\n{advice}", plain(found))
    return exits.CORRUPT


def _describe(body: bytes, where: str) -> str:
    try:
        summary = summarize(decode(body, where).state)
    except CorruptStateError:
        return f"it cannot be read as a queue, {size(len(body))}"
    since = moment(summary.created_at)
    return f"{_jobs(summary)}, {size(len(body))}, in use since {since}"


def _jobs(summary: admin.Summary) -> str:
    total = sum(summary.jobs.values())
    parts = ", ".join(f"{count:,} {status}" for status, count in summary.jobs.items())
    return counted(total, "job") + (f" ({parts})" if parts else "")
