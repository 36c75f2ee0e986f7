"""Jobs as the page shows them: rows of a list, one job with its payload, and slices of a search.

A lease never leaves this process: with it a reader could settle a job that another worker runs.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bucketq.errors import InvalidRequestError, PayloadError
from bucketq.model.records import STATUSES, Encoding, JobRecord
from bucketq.model.side_objects import is_side, read_ref
from bucketq.queue.job import Job, JobPage
from bucketq.queue.queue import Queue

PAGE_JOBS = 100
"""How many jobs a page lists: more than a screen, and the answer stays small."""
_SLICE_JOBS = 5000
"""How many jobs one request searches, so that it answers soon and others have their turn."""
_LARGE_PAGE = 1000
_SMALL_BYTES = 2048
"""How many jobs are read at once if few match and payloads are smaller than this: a broker reads
them in 20 ms, and with pages of a hundred most of a search is spent on round trips."""
_LOOK_S = 1.0
"""For how long a page is filled, if few jobs match."""
_PREVIEW = 160
"""How many characters of a payload or an error a row shows."""
_SHOWN_BYTES = 64 * 1024
"""Up to this size a payload is part of the answer; a larger one is loaded on demand."""
_HEX_BYTES = 4096
"""How many bytes are shown in hexadecimal; all of them can be downloaded."""

_ROW = (
    *("id", "kind", "status", "seq", "priority", "pushed_at", "run_at", "attempt", "failures"),
    *("lost_leases", "max_attempts", "worker", "claimed_at", "finished_at", "outcome", "group"),
    *("tags", "progress", "batch_id", "cancel_requested", "is_held"),
)
_HIDDEN = frozenset({"lease", "silent_s", "payload", "result"})


class JobFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are meant: all that match each of these."""

    status: tuple[str, ...] = ()
    kind: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    """Each is ``name=value``."""
    batch: str = ""

    def query(self) -> dict[str, Any]:
        """Return the arguments of ``Queue.jobs``."""
        unknown = [status for status in self.status if status not in STATUSES]
        if unknown:
            raise InvalidRequestError(f"unknown status {unknown[0]!r}: use {', '.join(STATUSES)}")
        tags = dict[str, str]()
        for text in self.tag:
            name, equals, value = text.partition("=")
            if not equals:
                raise InvalidRequestError(f"write a tag as name=value, got {text!r}")
            tags[name] = value
        return {
            "statuses": self.status or None,
            "kinds": self.kind or None,
            "groups": self.group or None,
            "tags": tags or None,
            "batch_id": self.batch,
        }


async def list_jobs(queue: Queue[Any], wanted: JobFilter, after: int) -> dict[str, object]:
    """Return a page of jobs after a place in the order of pushes."""
    page = await page_of(queue, wanted.query(), after)
    return {"jobs": [row_of(job.record) for job in page.jobs], "next_after": page.next_after}


async def page_of(
    queue: Queue[Any], query: dict[str, Any], after: int, most: int = PAGE_JOBS
) -> JobPage[Any]:
    """Read a page of jobs, or what is found of it in a second.

    A tag, a group or a batch that few jobs have is looked for in all of them, and a million take
    longer than a person waits for without a sign.
    """
    found, until_s = list[Job[Any]](), asyncio.get_running_loop().time() + _LOOK_S
    while True:
        limit = most - len(found)
        page = await queue.jobs(**query, after=after, limit=limit, partial=True)
        found += page.jobs
        is_late = asyncio.get_running_loop().time() >= until_s
        if page.next_after is None or len(found) == most or is_late:
            return JobPage(tuple(found), page.next_after)
        after = page.next_after


class JobSearch(Struct, frozen=True, kw_only=True):
    """What is looked for in jobs one by one, because no index has it."""

    text: str = ""
    """In any field, ignoring case."""
    since: datetime | None = None
    until: datetime | None = None
    """Pushed from the one to before the other; None: at any time."""

    def matches(self, job: JobRecord) -> bool:
        """Whether a job is looked for."""
        if self.since is not None and job.pushed_at < self.since:
            return False
        if self.until is not None and job.pushed_at >= self.until:
            return False
        return not self.text or self.text.casefold() in _text_of(job)


async def search_jobs(
    queue: Queue[Any], wanted: JobFilter, after: int, search: JobSearch
) -> dict[str, object]:
    """Search a slice of the jobs.

    The answer says how many jobs were searched, and where the next slice begins.
    """
    found = list[dict[str, object]]()
    searched, limit, next_after = 0, PAGE_JOBS, after
    until_s = asyncio.get_running_loop().time() + _LOOK_S
    while True:
        page = await page_of(queue, wanted.query(), next_after, limit)
        searched += len(page.jobs)
        matching = [row_of(job.record) for job in page.jobs if search.matches(job.record)]
        found += matching
        is_late = searched >= _SLICE_JOBS or asyncio.get_running_loop().time() >= until_s
        if page.next_after is None or len(found) >= PAGE_JOBS or is_late:
            return {"jobs": found, "next_after": page.next_after, "searched": searched}
        next_after = page.next_after
        size_bytes = sum(len(bytes(job.record.payload)) for job in page.jobs)
        is_small = size_bytes < _SMALL_BYTES * len(page.jobs)
        limit = _LARGE_PAGE if is_small and 10 * len(matching) < len(page.jobs) else PAGE_JOBS


def row_of(record: JobRecord) -> dict[str, object]:
    """Return what a list shows of a job."""
    row: dict[str, object] = {name: getattr(record, name) for name in _ROW}
    row["payload"] = _preview(record.payload, record.payload_encoding)
    row["error"] = _summary(record.errors[-1].error) if record.errors else ""
    return row


def details_of(record: JobRecord) -> dict[str, object]:
    """Return everything about a job but its lease."""
    fields: dict[str, object] = {
        name: getattr(record, name) for name in record.__struct_fields__ if name not in _HIDDEN
    }
    fields["is_held"] = record.is_held
    fields["payload"] = _body(record.payload, record.payload_encoding)
    fields["result"] = _body(record.result, record.result_encoding)
    return fields


async def body_of(queue: Queue[Any], job: Job[Any], part: str) -> AsyncIterator[bytes]:
    """Yield a payload or a result as it was pushed: the bytes, or JSON."""
    chunks = queue.open_result(job) if part == "result" else queue.open_payload(job)
    async for chunk in chunks:
        yield chunk


def _text_of(record: JobRecord) -> str:
    """Everything in a job that can be searched for."""
    names = (record.id, record.kind, record.group, record.key, record.unique, record.worker)
    tags = [f"{name}={value}" for name, value in (record.tags or {}).items()]
    errors = [failure.error for failure in record.errors]
    payload = "" if record.payload_encoding else _readable(record.payload)
    parts = (*names, record.batch_id, payload, *tags, *errors)
    return "\n".join(filter(None, parts)).casefold()


def _readable(raw: Raw) -> str:
    """JSON without escapes, in which a person's words are found."""
    text = bytes(raw).decode(errors="replace")
    if "\\u" not in text:
        return text
    return msgspec.json.encode(msgspec.json.decode(raw)).decode()


def _summary(error: str) -> str:
    """Return the line of an error that says what happened: of a traceback, it is the last one."""
    lines = error.strip().splitlines() or [""]
    return (lines[-1] if lines[0].startswith("Traceback") else lines[0])[:_PREVIEW]


def _preview(raw: Raw, encoding: Encoding | None) -> str:
    if is_side(encoding):
        return _size_of_large(raw)
    if encoding == "base64":
        return f"{len(base64.b64decode(msgspec.json.decode(raw, type=str))):,} bytes"
    return bytes(raw)[: 4 * _PREVIEW].decode(errors="ignore")[:_PREVIEW]


def _size_of_large(raw: Raw) -> str:
    try:
        return f"{read_ref(raw, 'it').bytes:,} bytes"
    except PayloadError as error:
        return str(error)


def _body(raw: Raw, encoding: Encoding | None) -> dict[str, object] | None:
    """Return a payload or result as JSON, in hexadecimal, or only its size if it is large."""
    if not bytes(raw):
        return None
    if is_side(encoding):
        try:
            size = read_ref(raw, "it").bytes
        except PayloadError as error:
            return {"form": "lost", "error": str(error)}
        return {"form": "large", "bytes": size, "is_json": encoding == "object"}
    if encoding == "base64":
        content = base64.b64decode(msgspec.json.decode(raw, type=str))
        return {"form": "hex", "bytes": len(content), "hex": content[:_HEX_BYTES].hex()}
    size = len(bytes(raw))
    if size > _SHOWN_BYTES:
        return {"form": "large", "bytes": size, "is_json": True}
    # As text: numbers beyond 2**53 would change in a browser that parses them.
    return {"form": "json", "bytes": size, "text": bytes(raw).decode()}
