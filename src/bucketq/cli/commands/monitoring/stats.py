"""``bucketq stats``: count the jobs of a queue."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

from bucketq.cli.limit_texts import describe
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url, option
from bucketq.cli.parsing import now, parse_duration
from bucketq.cli.terminal.output import Output, counted, duration, moment, plain, size
from bucketq.cli.terminal.output_pipe import while_read
from bucketq.cli.terminal.text_table import Column
from bucketq.errors import InvalidRequestError
from bucketq.model.queue_stats import Stats
from bucketq.model.records import STATUSES
from bucketq.queue.queue import Queue

_CLEAR = "\x1b[H\x1b[J"
_LEAST_S = 0.1
"""The shortest pause between two counts: each is a request."""


async def run(
    out: Output,
    url: Url,
    *,
    watch: Annotated[bool, option("--watch -w", "Count again and again, until Ctrl-C.")] = False,
    every: Annotated[str, option("--every DURATION", "With --watch: how often.")] = "2s",
) -> None:
    """Count jobs by kind and status.

    Also shows the oldest queued job, kinds that no worker claims, the broker and the size.

    With --watch a terminal is redrawn each time. In a file or a pipe each count is one line, and
    with --json one document on a line, with the time as "at".

    Examples:
        bucketq stats file:///srv/jobs/queue.json
        bucketq stats s3://bucket/queue.json --json | jq .totals.queued
        bucketq stats s3://bucket/queue.json --watch --every 10s
    """
    pause_s = parse_duration(every, "--every")
    if pause_s < _LEAST_S:
        raise InvalidRequestError(f"--every must be {_LEAST_S:g} seconds or more, got {every}")
    async with open_queue(url, out.timeout_s) as queue:
        if watch:
            await while_read(_watch(out, queue, pause_s))
        found = await queue.stats()
    if out.json:
        out.value(_document(found))
    else:
        _print(out, found)


async def _watch(out: Output, queue: Queue[Any], pause_s: float) -> None:
    """Count until cancelled."""
    is_redrawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    while True:
        found = await queue.stats()
        if out.json:
            out.value({"at": now(), **_document(found)})
        elif is_redrawn:
            sys.stdout.write(_CLEAR)
            print(f"{moment(now())}, every {pause_s:g} s\n")
            _print(out, found)
        else:
            print(_line(found))
        await asyncio.sleep(pause_s)


def _document(found: Stats) -> dict[str, Any]:
    totals = {status: found.total(status) for status in STATUSES}
    more = {"head_bytes": found.head_bytes, "totals": totals, "unclaimed": found.unclaimed()}
    shown = plain(found)
    del shown["samples"]  # They were not asked for.
    return {**shown, **more}


def _line(found: Stats) -> str:
    """A count on one line."""
    counts = "  ".join(f"{status} {found.total(status):,}" for status in STATUSES)
    oldest = found.oldest_queued_s
    age = "" if oldest is None else f"  oldest {duration(max(0.0, oldest))}"
    paused = "  paused" if found.paused else ""
    if found.paused_kinds and not found.paused:
        paused = f"  paused: {', '.join(found.paused_kinds)}"
    return f"{moment(now())}  {counts}{age}{paused}"


def _print(out: Output, found: Stats) -> None:
    """Print a table of kinds, and what else is worth knowing."""
    totals = {status: found.total(status) for status in STATUSES}
    rows: list[list[object]] = [
        [kind + ("  (paused)" if kind in found.paused_kinds else "")]
        + [found.counts.get(kind, {}).get(status, 0) for status in STATUSES]
        for kind in dict.fromkeys((*found.counts, *found.paused_kinds))
    ]
    rows.append(["all", *totals.values()])
    out.table([Column("KIND"), *(Column(status.upper(), right=True) for status in STATUSES)], rows)
    if out.quiet:
        return
    print()
    if found.paused:
        print("paused: no jobs are handed out until `bucketq resume`")
    if found.oldest_queued_s is not None:
        print(f"oldest queued job: {duration(max(0.0, found.oldest_queued_s))}")
    if found.delayed:
        named = ", ".join(f"{kind} ({count:,})" for kind, count in found.delayed.items())
        out.result(f"delayed: these of the queued jobs are not due yet: {named}", None)
    if found.held:
        named = ", ".join(f"{kind} ({count:,})" for kind, count in found.held.items())
        out.result(f"held: these of the queued jobs wait for others: {named}", None)
    for limit in found.limited:
        out.result(f"limited: no more jobs of {limit.target} start now, {describe(limit)}", None)
    if found.unclaimed():
        out.result(_without_worker(found.unclaimed()), None)
    if totals["done"]:
        print(_waiting_for_archive(totals["done"]))
    if found.broker is not None and found.broker.address:
        print(f"broker: {found.broker.address}, epoch {found.broker.epoch}")
    parts = f"{counted(found.partitions, 'partition')}, " if found.partitions else ""
    print(
        f"{parts}version {found.version:,}, {_size(found)}, {counted(found.keys, 'key')}, "
        f"{counted(found.sessions, 'session')}"
    )


def _size(found: Stats) -> str:
    if not found.segments:
        return size(found.bytes)
    return (
        f"{size(found.bytes)} ({size(found.head_bytes)} in the object, {size(found.segment_bytes)} "
        f"in {counted(found.segments, 'segment')})"
    )


def _without_worker(kinds: dict[str, int]) -> str:
    named = ", ".join(f"{kind} ({count:,})" for kind, count in kinds.items())
    return (
        f"queued with none of their kind running: {named}; unless they were just pushed, check "
        "that a worker has a handler for them"
    )


def _waiting_for_archive(count: int) -> str:
    waits, them = ("waits", "it") if count == 1 else ("wait", "them")
    return (
        f"{counted(count, 'finished job')} {waits} for the archive; a long-lived process "
        f"moves {them}, or `bucketq archive flush` does"
    )
