"""Commands of an operator: cancel, redrive, purge, pause, resume, config."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from bucketq.cli.options import (
    JobId,
    Kinds,
    Request,
    Url,
    Yes,
    opened,
    parse_duration,
    parse_settings,
)
from bucketq.cli.output import Output, counted, plain
from bucketq.cli.prompt import confirmed
from bucketq.cli.table import Column
from bucketq.model.settings import Settings

Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="JOB", help="Only these jobs; none: all.", show_default=False),
]
Kind = Annotated[
    str | None,
    typer.Argument(metavar="KIND", help="Only this kind; none: all.", show_default=False),
]


async def cancel(out: Output, *, url: Url, job: JobId, request: Request = None) -> None:
    """Cancel a waiting job; ask the worker of a running one to stop.

    Examples:
        bucketq cancel file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
    """
    async with opened(url, out.timeout_s) as queue:
        answer = await queue.cancel(job, request=request)
    text = {
        "cancelled": f"{job} is cancelled",
        "requested": f"{job} is running; its worker is asked to stop",
        "finished": f"{job} has finished already",
    }[answer]
    out.done(text, {"id": job, "answer": answer})


async def redrive(
    out: Output,
    *,
    url: Url,
    jobs: Jobs = None,
    kinds: Kinds = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", help="At most so many, the first to die first.")
    ] = None,
    request: Request = None,
) -> None:
    """Give dead jobs a new life, with all their attempts.

    Examples:
        bucketq redrive file:///srv/jobs/queue.json --kind email
        bucketq redrive file:///srv/jobs/queue.json JOB1 JOB2
    """
    async with opened(url, out.timeout_s) as queue:
        count = await queue.redrive(jobs or None, kinds=kinds or None, limit=limit, request=request)
    out.done(f"{counted(count, 'job')} redriven", {"redriven": count})


async def purge(
    out: Output,
    *,
    url: Url,
    jobs: Jobs = None,
    kinds: Kinds = None,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Dead for so long, like 7d.")
    ] = "0",
    yes: Yes = False,
    request: Request = None,
) -> int:
    """Finish dead jobs for good. They go to the archive, with outcome `dead`.

    Examples:
        bucketq purge file:///srv/jobs/queue.json --older-than 7d
        bucketq purge file:///srv/jobs/queue.json JOB1 JOB2 --yes
    """
    older_than_s = parse_duration(older_than, "--older-than")
    async with opened(url, out.timeout_s) as queue:
        if not yes and not jobs:
            dead = (await queue.stats()).total("dead")
            what = f"finish dead jobs for good ({dead:,} are dead in all)"
            if not confirmed(out, what):
                return 1
        count = await queue.purge(
            jobs or None, kinds=kinds or None, older_than_s=older_than_s, request=request
        )
    out.done(f"{counted(count, 'job')} purged", {"purged": count})
    return 0


async def pause(out: Output, *, url: Url, kind: Kind = None, request: Request = None) -> None:
    """Hand out no more jobs of a kind, or none at all. What runs goes on running.

    Examples:
        bucketq pause file:///srv/jobs/queue.json
        bucketq pause file:///srv/jobs/queue.json email
    """
    async with opened(url, out.timeout_s) as queue:
        await queue.pause(kind, request=request)
    out.done(f"{kind or 'the queue'} is paused", {"paused": kind or True})


async def resume(out: Output, *, url: Url, kind: Kind = None, request: Request = None) -> None:
    """Undo the pause of a kind, or every pause.

    Examples:
        bucketq resume file:///srv/jobs/queue.json
        bucketq resume file:///srv/jobs/queue.json email
    """
    async with opened(url, out.timeout_s) as queue:
        await queue.resume(kind, request=request)
    out.done(f"{kind or 'the queue'} is no longer paused", {"resumed": kind or True})


async def config(
    out: Output,
    *,
    url: Url,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE", help="Settings to change; none: show.", show_default=False
        ),
    ] = None,
    request: Request = None,
) -> None:
    """Show the settings of a queue, or change some.

    All processes that use the queue share them.

    Examples:
        bucketq config file:///srv/jobs/queue.json
        bucketq config file:///srv/jobs/queue.json lease_s=60 heartbeat_s=10
        bucketq config file:///srv/jobs/queue.json 'backoff={"base_s": 5, "max_s": 600}'
    """
    wanted = parse_settings(changes)
    async with opened(url, out.timeout_s) as queue:
        settings = await queue.config(request=request, **wanted)
    values = {name: plain(getattr(settings, name)) for name in Settings.__struct_fields__}
    if out.json:
        out.value(values)
        return
    shown = {name: value for name, value in values.items() if not wanted or name in wanted}
    defaults = {name: plain(getattr(Settings(), name)) for name in values}
    if wanted and out.quiet:
        return
    out.table(
        [Column("SETTING"), Column("VALUE"), Column("DEFAULT")],
        (
            (name, _spelled(value), "" if value == defaults[name] else _spelled(defaults[name]))
            for name, value in shown.items()
        ),
    )


def _spelled(value: object) -> str:
    if isinstance(value, dict | bool):
        return msgspec.json.encode(value).decode()
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else f"{value}"  # noqa: PLR2004 - beyond it "g" loses digits
