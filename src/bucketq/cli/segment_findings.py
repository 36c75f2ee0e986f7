"""The findings of ``bucketq doctor --deep``."""

from __future__ import annotations

from collections.abc import Sequence

from bucketq.admin import (
    BadSegment,
    DeepCheck,
    HistoryCheck,
    Orphan,
    PayloadCheck,
    QueueObject,
    check_deep,
)
from bucketq.cli.store_checks import StoreChecks
from bucketq.cli.terminal.output import counted, size
from bucketq.errors import BucketQError, QueueNotFoundError

_MOST_NAMED = 3
"""So many left-over segments are named; ``--json`` has all of them."""


async def check_rows(target: QueueObject, checks: StoreChecks) -> DeepCheck | None:
    """Check every segment, and add what was found; None: there was nothing that could be read."""
    try:
        found = await check_deep(target)
    except QueueNotFoundError:
        checks.note("rows", "skip", "no queue yet")
        return None
    except BucketQError as error:
        checks.note("rows", "fail", str(error))
        return None
    for bad in found.bad:
        checks.note("segment", "fail", _describe(bad))
    for text in found.twice:
        checks.note("rows", "fail", text)
    if found.is_intact:
        text = (
            f"version {found.version:,}: all of {counted(found.rows, 'row')} in "
            f"{counted(found.segments, 'segment')} ({size(found.size_bytes)}) can be read, and "
            "every row of the queue is in one place"
        )
        checks.note("rows", "ok", text)
    if found.dropped:
        text = (
            f"{counted(found.dropped, 'segment')} could not be checked, because the queue was "
            "changed meanwhile; run it again"
        )
        checks.note("rows", "skip", text)
    _note_history(found.history, checks)
    _note_payloads(found.payloads, checks)
    if found.orphans:
        text = (
            f"{_list(found.orphans)}: not named by the queue; they were written in vain, or are "
            "about to be named; a process that keeps the queue open deletes what is left over"
        )
        checks.note("left over", "ok", text)
    for incarnation, some in found.other_incarnations.items():
        text = (
            f"{_list(some)}: of incarnation {incarnation or 'unknown'}, which is not the present "
            "one; left by a restore or a deletion that was interrupted, unless one is in progress: "
            f"`bucketq gc --incarnation {incarnation}` deletes them"
        )
        checks.note("left over", "warn", text)
    return found


def _note_history(found: HistoryCheck | None, checks: StoreChecks) -> None:
    if found is None:
        return
    for problem in found.problems:
        text = (
            f"{problem}. Put the object back if you have a copy; `bucketq history purge` forgets "
            "the versions up to one that can be read. The jobs of the queue do not need it"
        )
        checks.note("history", "fail", text)
    if not found.problems:
        versions = f"versions {found.since:,} to {found.version:,}"
        if found.since > found.version:
            versions = f"it begins with version {found.since:,}, the next one;"
        text = (
            f"{versions} and {counted(found.copies, 'copy', 'copies')} can be read "
            f"({counted(found.objects, 'object')}, {size(found.size_bytes)})"
        )
        checks.note("history", "ok", text)


def _note_payloads(found: PayloadCheck | None, checks: StoreChecks) -> None:
    if found is None:
        return
    for problem in found.missing:
        text = (
            f"{problem}. Put its parts back if you have a copy, or cancel the job: its attempts "
            "fail, and no other job is affected"
        )
        checks.note("payload", "fail", text)
    if not found.missing:
        text = (
            f"{counted(found.objects, 'large payload')} ({size(found.size_bytes)}) of jobs are "
            f"there, and {found.left_over:,} others, which the archive names or a sweep deletes"
        )
        checks.note("payload", "ok", text)


def _describe(bad: BadSegment) -> str:
    rows = counted(bad.live, "key" if bad.cls == "keys" else "job")
    return (
        f"{bad.key}: {'; '.join(bad.problems)}. {bad.lost:,} of its {rows} cannot be read. Put the "
        f"object back if you have a copy; `bucketq repair URL --accept-loss {bad.id}` gives up "
        "what cannot be read"
    )


def _list(orphans: Sequence[Orphan]) -> str:
    named = ", ".join(orphan.key for orphan in orphans[:_MOST_NAMED])
    more = f" and {len(orphans) - _MOST_NAMED:,} more" if len(orphans) > _MOST_NAMED else ""
    total = size(sum(orphan.size_bytes for orphan in orphans))
    return f"{counted(len(orphans), 'segment')} ({total}): {named}{more}"
