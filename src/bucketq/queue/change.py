"""``Change``: what one version of a queue changed, as readers of its history see it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from bucketq.model.history import UNSET, ChangeRecord
from bucketq.model.records import NOTHING
from bucketq.model.side_objects import is_object_name, is_side

_decode_requests = msgspec.json.Decoder(list[list[Any]]).decode
_decode_jobs = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_gone = msgspec.json.Decoder(tuple[tuple[str, int], ...]).decode
_decode_head = msgspec.json.Decoder(dict[str, Any]).decode


class HistoryRange(NamedTuple):
    """Which versions the history of a queue has."""

    incarnation: str
    first: int
    """The first version that it has."""
    last: int
    """The newest version of the queue; it is before ``first`` if history was just switched on."""


class ChangeRequest(Struct, frozen=True):
    """A request that changed something."""

    verb: str
    """What it asked for: ``push``, ``claim``, ``complete``, or housekeeping such as ``tidy``."""
    client: str
    """The same for all requests of one client's session; empty: the queue's own housekeeping."""
    jobs: tuple[str, ...]
    """The ids of the jobs that it changed."""
    by: str = ""
    """The token of a broker's client, or user and host of a process that wrote by itself."""


class JobChange(Struct, frozen=True):
    """What a version changed of one job."""

    id: str
    seq: int
    fields: dict[str, Any]
    """The fields that were changed, as JSON values; of a job that was just pushed, all of them.

    A large payload or result is not among them: ``payload_ref`` and ``result_ref`` name its object.
    """
    unset: tuple[str, ...] = ()
    """The names of fields that the job no longer has, such as ``worker`` after a release."""

    @property
    def is_new(self) -> bool:
        """Whether the job was pushed by this version."""
        return "pushed_at" in self.fields


class Change(Struct, frozen=True, kw_only=True):
    """What one version changed."""

    incarnation: str
    """Which queue: versions of another incarnation are versions of another queue."""
    version: int
    commit: str
    """The id of the commit that made this version."""
    at: datetime
    """When it was written, by the clock of its writer; clocks may be set back."""
    epoch: int
    """The epoch of the broker that wrote it, or of the last one before."""
    requests: tuple[ChangeRequest, ...] = ()
    """The requests that changed something, in the order in which they were applied."""
    jobs: tuple[JobChange, ...] = ()
    gone: tuple[tuple[str, int], ...] = ()
    """The id and ``seq`` of the jobs that left the queue for the archive."""
    head: dict[str, Any] = {}
    """``settings``, ``paused`` and ``paused_kinds``, if they were changed."""


def _without_refs(fields: dict[str, Any]) -> dict[str, Any]:
    """Rename references to side objects, so that they are not taken for payloads or results."""
    for content in ("payload", "result"):
        if _is_ref(fields, content):
            fields[f"{content}_ref"] = fields.pop(content)
    return fields


def _is_ref(fields: dict[str, Any], content: str) -> bool:
    encoding, value = fields.get(f"{content}_encoding"), fields.get(content)
    if encoding is not None or not isinstance(value, dict):
        return value is not None and is_side(encoding)
    # If a large payload replaced another, the encoding is the same, and so is not among the fields.
    return "pushed_at" not in fields and is_object_name(value.get("object"))


def change_of(row: ChangeRecord, incarnation: str) -> Change:
    """Decode a row of the history."""
    requests = [] if row.requests is NOTHING else _decode_requests(row.requests)
    jobs = [] if row.jobs is NOTHING else _decode_jobs(row.jobs)
    return Change(
        incarnation=incarnation,
        version=row.seq,
        commit=row.id,
        at=row.at,
        epoch=row.epoch,
        requests=tuple(
            ChangeRequest(verb, client, tuple(ids), *by) for verb, client, ids, *by in requests
        ),
        jobs=tuple(
            JobChange(job.pop("id"), job.pop("seq"), _without_refs(job), tuple(job.pop(UNSET, ())))
            for job in jobs
        ),
        gone=() if row.gone is NOTHING else _decode_gone(row.gone),
        head={} if row.head is NOTHING else _decode_head(row.head),
    )
