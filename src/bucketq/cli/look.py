"""Commands that show what is in a queue: stats, ls, show, dead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from bucketq.cli.options import JobId, Kinds, Url, now, opened, parse_tags
from bucketq.cli.output import Output, age, counted, duration, moment, plain, size
from bucketq.cli.table import Column
from bucketq.model.job import STATUSES, JobRecord
from bucketq.queue.base import Queue
from bucketq.queue.job import Job

Limit = Annotated[int, typer.Option("--limit", "-n", help="At most so many jobs.", min=1)]
After = Annotated[
    int,
    typer.Option("--after", metavar="N", help="Go on behind this number; a page tells it.", min=0),
]
All = Annotated[bool, typer.Option("--all", help="All of them, page by page.")]

_COLUMNS = (
    Column("JOB"),
    Column("KIND"),
    Column("STATUS"),
    Column("PRIO", right=True, drop=3),
    Column("ATTEMPT", right=True, drop=2),
    Column("AGE", right=True, drop=1),
    Column("NOTE", flexible=True, drop=4),
    Column("PAYLOAD", flexible=True, drop=5),
)
_DEAD_COLUMNS = (
    Column("JOB"),
    Column("KIND"),
    Column("ATTEMPT", right=True, drop=2),
    Column("DIED", drop=1),
    Column("LAST ERROR", flexible=True),
)
_PAGE = 1000
_PAYLOAD_CHARS = 200
_NOTE_CHARS = 60
"""The rest of an error is shown by `dead`; a table has to leave room for payloads."""


async def stats(out: Output, url: Url) -> None:
    """Count jobs by kind and status; tell how the queue is doing.

    Examples:
        bucketq stats file:///srv/jobs/queue.json
        bucketq stats s3://bucket/queue.json --json | jq .totals.queued
    """
    async with opened(url, out.timeout_s) as queue:
        found = await queue.stats()
    totals = {status: found.total(status) for status in STATUSES}
    if out.json:
        out.value(plain(found) | {"totals": totals, "unclaimed": found.unclaimed()})
        return
    rows: list[list[object]] = [
        [kind + ("  (paused)" if kind in found.paused_kinds else "")]
        + [by_status.get(status, 0) for status in STATUSES]
        for kind, by_status in found.counts.items()
    ]
    rows.append(["all", *totals.values()])
    out.table([Column("KIND"), *(Column(status.upper(), right=True) for status in STATUSES)], rows)
    if out.quiet:
        return
    print()
    if found.paused:
        print("paused: no jobs are handed out (bucketq resume)")
    if found.oldest_queued_s is not None:
        print(f"oldest waiting job: {duration(max(0.0, found.oldest_queued_s))}")
    if found.unclaimed():
        out.result(_without_worker(found.unclaimed()), None)
    if totals["done"]:
        print(_waiting_for_archive(totals["done"]))
    if found.broker is not None and found.broker.address:
        print(f"broker: {found.broker.address}, epoch {found.broker.epoch}")
    print(
        f"version {found.version:,}, {size(found.bytes)}, {counted(found.keys, 'key')}, "
        f"{counted(found.sessions, 'session')}"
    )


def _without_worker(kinds: dict[str, int]) -> str:
    named = ", ".join(f"{kind} ({count:,})" for kind, count in kinds.items())
    return (
        f"waiting with none of their kind running: {named}; unless they are delayed, look for a "
        "worker with a handler for them"
    )


def _waiting_for_archive(count: int) -> str:
    waits, them = ("waits", "it") if count == 1 else ("wait", "them")
    return (
        f"{counted(count, 'finished job')} {waits} for the archive; a process that stays open "
        f"moves {them}, or `bucketq archive flush`"
    )


async def ls(
    out: Output,
    *,
    url: Url,
    statuses: Annotated[
        list[str] | None,
        typer.Option("--status", "-s", help=f"Only this status: {', '.join(STATUSES)}."),
    ] = None,
    kinds: Kinds = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", "-t", metavar="NAME=VALUE", help="Only with it.")
    ] = None,
    limit: Limit = 50,
    after: After = 0,
    every: All = False,
) -> None:
    """List jobs in the order in which they were pushed.

    With --json each job is one line, field for field as it stands in the object.

    Examples:
        bucketq ls file:///srv/jobs/queue.json --status queued --kind email
        bucketq ls file:///srv/jobs/queue.json --tag team=growth --limit 500
        bucketq ls file:///srv/jobs/queue.json --all --json | jq -r .id
    """
    moment_now = now()
    async with opened(url, out.timeout_s) as queue:
        await _list(
            out,
            queue,
            _COLUMNS,
            lambda job: _row_of(job, moment_now),
            limit=None if every else limit,
            statuses=statuses or None,
            kinds=kinds or None,
            tags=parse_tags(tags),
            after=after,
        )


async def dead(
    out: Output, *, url: Url, kinds: Kinds = None, limit: Limit = 50, after: After = 0
) -> None:
    """List dead jobs with their last error.

    `redrive` gives them a new life, `purge` finishes them for good.

    Examples:
        bucketq dead file:///srv/jobs/queue.json
        bucketq dead file:///srv/jobs/queue.json --kind email --json | jq -r .id
    """
    async with opened(url, out.timeout_s) as queue:
        await _list(
            out,
            queue,
            _DEAD_COLUMNS,
            lambda job: (job.id, job.kind, job.attempt, job.finished_at, _last_error(job)),
            limit=limit,
            statuses="dead",
            kinds=kinds or None,
            after=after,
        )


async def show(out: Output, *, url: Url, job: JobId) -> None:
    """Show one job: its fields, payload, result and errors.

    Examples:
        bucketq show file:///srv/jobs/queue.json 01KG9MFMM0PWD5ARV0FP67PJ7K
        bucketq show file:///srv/jobs/queue.json my-job --json | jq .payload
    """
    async with opened(url, out.timeout_s) as queue:
        found = await queue.get(job)
    if out.json:
        out.value(found.record)
        return
    rows = [
        (name.replace("_", " "), moment(value) if isinstance(value, datetime) else value)
        for name, value in _fields(found.record)
    ]
    if found.status == "running" and found.heartbeat_at is not None:
        rows.append(("silent", age(found.heartbeat_at, now())))
    out.table([Column("FIELD"), Column("VALUE", flexible=True)], rows)
    for failure in found.errors:
        print()
        out.result(
            f"attempt {failure.attempt} {failure.cause} at {moment(failure.at)}: {failure.error}",
            None,
        )
    _print_json("payload", found.record.payload)
    if bytes(found.record.result):
        _print_json("result", found.record.result)


async def _list(
    out: Output,
    queue: Queue[Any],
    columns: Sequence[Column],
    row_of: Callable[[Job[Any]], Sequence[object]],
    *,
    limit: int | None,
    after: int | None,
    **query: Any,
) -> None:
    """List jobs page by page, each when it has come; without a limit all of them."""
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
    _tell_more(out, after)


def _row_of(job: Job[Any], moment_now: datetime) -> tuple[object, ...]:
    return (
        job.id,
        job.kind,
        job.status,
        job.priority,
        job.attempt,
        age(job.pushed_at, moment_now),
        _note_on(job),
        bytes(job.record.payload)[:_PAYLOAD_CHARS].decode(errors="replace"),
    )


def _note_on(job: Job[Any]) -> str:
    """What is worth knowing beside the status."""
    if job.status == "running":
        return f"{job.worker}" + (" (to be cancelled)" if job.record.cancel_requested else "")
    if job.status == "queued" and job.run_at is not None:
        return f"from {moment(job.run_at)}"
    if job.status == "dead":
        error = _last_error(job)
        return error if len(error) <= _NOTE_CHARS else f"{error[: _NOTE_CHARS - 1]}…"
    return job.outcome or ""


def _last_error(job: Job[Any]) -> str:
    return job.errors[-1].error.partition("\n")[0] if job.errors else ""


def _fields(record: JobRecord) -> list[tuple[str, object]]:
    """The fields that a record has, without those that are shown apart."""
    # How long a worker is silent by now is not what a broker has last written down.
    apart = {"payload", "result", "errors", "backoff", "tags", "silent_s"}
    shown: list[tuple[str, object]] = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if name == "tags" and value:
            shown.append((name, " ".join(f"{tag}={text}" for tag, text in value.items())))
        elif name == "backoff" and value is not None:
            shown.append((name, msgspec.json.encode(value).decode()))
        elif name not in apart and value is not None and value is not False:
            shown.append((name, value))
    return shown


def _print_json(title: str, raw: msgspec.Raw) -> None:
    print(f"\n{title}:")
    print(msgspec.json.format(bytes(raw), indent=2).decode())


def _tell_more(out: Output, after: int | None) -> None:
    if after is not None:
        out.note(f"there are more: --after {after}")
