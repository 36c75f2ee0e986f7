"""``bucketq stats``: count the jobs of a queue."""

from __future__ import annotations

from bucketq.cli.limit_texts import describe
from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url
from bucketq.cli.terminal.output import Output, counted, duration, plain, size
from bucketq.cli.terminal.text_table import Column
from bucketq.model.queue_stats import Stats
from bucketq.model.records import STATUSES


async def run(out: Output, url: Url) -> None:
    """Count jobs by kind and status.

    Also shows the oldest queued job, kinds that no worker claims, the broker and the size.

    Examples:
        bucketq stats file:///srv/jobs/queue.json
        bucketq stats s3://bucket/queue.json --json | jq .totals.queued
    """
    async with open_queue(url, out.timeout_s) as queue:
        found = await queue.stats()
    totals = {status: found.total(status) for status in STATUSES}
    if out.json:
        more = {"head_bytes": found.head_bytes, "totals": totals, "unclaimed": found.unclaimed()}
        out.value(plain(found) | more)
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
        print("paused: no jobs are handed out until `bucketq resume`")
    if found.oldest_queued_s is not None:
        print(f"oldest queued job: {duration(max(0.0, found.oldest_queued_s))}")
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
        f"queued with none of their kind running: {named}; unless they are delayed, check that a "
        "worker has a handler for them"
    )


def _waiting_for_archive(count: int) -> str:
    waits, them = ("waits", "it") if count == 1 else ("wait", "them")
    return (
        f"{counted(count, 'finished job')} {waits} for the archive; a long-lived process "
        f"moves {them}, or `bucketq archive flush` does"
    )
