"""``bucketq diff``: compare two versions of a queue."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Raw

from bucketq.cli.opening import open_queue
from bucketq.cli.parameters import Url, argument
from bucketq.cli.past_versions import read_past
from bucketq.cli.terminal.output import Output
from bucketq.cli.terminal.text_table import Column
from bucketq.model.operations import Snapshot

_COLUMNS = (
    Column("JOB"),
    Column("CHANGE"),
    Column("BEFORE", flexible=True),
    Column("AFTER", flexible=True),
)
# More than fits on a terminal; --json prints whole values.
_CELL_CHARS = 80
_encode = msgspec.json.Encoder().encode

Moment = Annotated[str, argument("V1", "A version, or a time: 1200, 2h (ago), or 2026-02-15.")]
Later = Annotated[str, argument("V2", "Another one.")]


async def run(out: Output, *, url: Url, first: Moment, second: Later) -> None:
    """Compare two versions of a queue.

    Lists what changed from the first to the second. Both must be in the history of the queue. With
    --json each job that differs is one line.

    Examples:
        bucketq diff file:///srv/jobs/queue.json 1200 1250
        bucketq diff file:///srv/jobs/queue.json 2h 1h --json
    """
    async with open_queue(url, out.timeout_s, reads_all=True) as queue:
        before, after = await read_past(queue, first, "V1"), await read_past(queue, second, "V2")
    found = differences(before, after)
    if out.json:
        for name, kind, fields in found:
            out.value({"job": name, "change": kind, "fields": fields})
        return
    rows = [
        (name, field or kind, _cell(old), _cell(new))
        for name, kind, fields in found
        for field, (old, new) in (fields if kind == "changed" else {"": ("", "")}).items()
    ]
    out.table(_COLUMNS, rows)
    out.note(f"from version {before.version} to version {after.version}")


def differences(
    before: Snapshot, after: Snapshot
) -> list[tuple[str, str, dict[str, tuple[Any, Any]]]]:
    """Return what differs: the settings and pauses, then the jobs in the order of their pushes."""
    found: list[tuple[str, str, dict[str, tuple[Any, Any]]]] = []
    old_head, new_head = _head(before), _head(after)
    if fields := _changed(old_head, new_head):
        found.append(("", "changed", fields))
    old = {job.seq: job for job in before.jobs}
    new = {job.seq: job for job in after.jobs}
    for seq in sorted(old.keys() | new.keys()):
        if seq not in old:
            found.append((new[seq].id, "added", {}))
        elif seq not in new:
            found.append((old[seq].id, "removed", {}))
        elif old[seq] != new[seq]:
            fields = _changed(_plain(old[seq]), _plain(new[seq]))
            found.append((new[seq].id, "changed", fields))
    return found


def _head(snapshot: Snapshot) -> dict[str, Any]:
    pauses = {"paused": snapshot.paused, "paused_kinds": list(snapshot.paused_kinds)}
    return {**_plain(snapshot.settings), **pauses}


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(_encode(value))
    return plain


def _changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*old, *new])
    pairs = {name: (old.get(name), new.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return (value or "")[:_CELL_CHARS]
    return bytes(value if isinstance(value, Raw) else _encode(value)).decode()[:_CELL_CHARS]
