"""The tables of a queue beside its jobs, each read by one verb: workers, schedules and so on."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import structs

from bucketq.model.oversight.audit_notes import DESCRIBED
from bucketq.model.settings import DEEP, Settings
from bucketq.queue.queue import Queue
from bucketq.queue.schedule import Schedule

Read = Callable[[Queue[Any]], Awaitable[object]]

_HELD_READ = 500
_HELD_SHOWN = 5
"""How many running jobs are read to name some of each worker; a link leads to all of them."""
_AUDIT_ROWS = 500
"""How many of the latest actions are shown."""
_IN_WORDS = {
    str(kind.__struct_config__.tag): " ".join(re.findall("[A-Z][a-z]+", kind.__name__)).lower()
    for kind in DESCRIBED
}
"""Actions of the audit as people write them: ``set limit``, not ``setlimit``."""


async def _schedules(queue: Queue[Any]) -> object:
    return [_schedule_row(each) for each in await queue.schedules()]


def _schedule_row(schedule: Schedule[Any]) -> dict[str, object]:
    row: dict[str, object] = structs.asdict(schedule)
    # As text, because payloads of bytes and large numbers are not JSON values of a browser.
    row["payload"] = msgspec.json.encode(schedule.payload).decode()
    return row


async def _settings(queue: Queue[Any]) -> object:
    current = await queue.settings()
    usual = DEEP if current.max_format >= DEEP.max_format else Settings()
    return [
        {"name": name, "value": getattr(current, name), "default": getattr(usual, name)}
        for name in Settings.__struct_fields__
    ]


async def _audit(queue: Queue[Any]) -> object:
    rows = await queue.audit(limit=_AUDIT_ROWS)
    return [
        structs.asdict(entry) | {"action": _IN_WORDS.get(entry.action, entry.action)}
        for entry in reversed(rows)
    ]


async def _batches(queue: Queue[Any]) -> object:
    rows = [structs.asdict(each) | {"open": each.open} for each in await queue.batches()]
    return rows[::-1]


async def _workers(queue: Queue[Any]) -> object:
    """List workers with the jobs that are held under the name of each, oldest push first."""
    workers = await queue.workers()
    held: dict[str, list[dict[str, object]]] = {}
    page = await queue.jobs(statuses=("running",), limit=_HELD_READ)
    for job in page.jobs:
        rows = held.setdefault(job.record.worker or "", [])
        if len(rows) < _HELD_SHOWN:
            rows.append({"id": job.id, "kind": job.kind, "since": job.record.claimed_at})
    return [structs.asdict(each) | {"jobs": held.get(each.name, [])} for each in workers]


TABLES: dict[str, Read] = {
    "workers": _workers,
    "schedules": _schedules,
    "limits": lambda queue: queue.limits(),
    "batches": _batches,
    "tokens": lambda queue: queue.tokens(),
    "consumers": lambda queue: queue.consumers(),
    "settings": _settings,
    "audit": _audit,
}
"""How each table is read, by its name in addresses."""
