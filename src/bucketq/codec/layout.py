"""The fields of the object, in the order in which they are written."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Raw, Struct, UnsetType

from bucketq.model.partitions import Partition

FORMAT = 2
"""The newest format that this code knows. A newer one is refused, an older one is read. An object
is written in format 1 until it uses something that older code must not ignore."""
REQUIRED = frozenset(
    {
        *("segments", "reservations", "consecutive-rows", "history", "schedules", "unique"),
        *("expiry", "groups", "limits", "payloads", "batches", "after", "partitions"),
    }
)
"""What an object of format 2 may require of its readers, as far as this code knows it."""

OPENINGS = {
    "sessions": b',\n"sessions":[',
    "keys": b'\n],"keys":[',
    "tokens": b'\n],"tokens":[',
    "consumers": b'\n],"consumers":[',
    "writers": b'\n],"writers":[',
    "schedules": b'\n],"schedules":[',
    "limits": b'\n],"limits":[',
    "buckets": b'\n],"buckets":[',
    "batches": b'\n],"batches":[',
    "audit": b'\n],"audit":[',
    "workers": b'\n],"workers":[',
    "results": b'\n],"results":[',
    "reservations": b'\n],"reservations":[',
    "segments": b'\n],"segments":[',
    "heads": b'\n],"heads":[',
    "changes": b'\n],"changes":[',
    "jobs": b'\n],"jobs":[',
}
"""The text before the rows of each table, in the order of the tables."""
COMMA = b","
SEPARATOR = COMMA + b"\n"
END = b"\n]}\n"
SEGMENTS = "segments"
"""The table of segments."""
CHANGES = "changes"
HISTORY = ("heads", CHANGES)
"""The tables of the history: the copies that are kept, and the latest changes."""
KEPT = frozenset({SEGMENTS, "audit", "workers", "results", "reservations", *HISTORY})
"""Tables that are no matter of people: an edit keeps them."""
NOT_COPIED = KEPT - {"audit"}
"""Tables that a copy is made without."""
TABLES = tuple(name for name in OPENINGS if name not in KEPT)
OPTIONAL = KEPT | {"tokens", "consumers", "writers", "schedules", "limits", "buckets", "batches"}
"""Tables that are left out if they are empty."""


class Head(Struct, frozen=True, kw_only=True):
    """The fields of the object itself, on its second line."""

    version: int
    commit: str
    incarnation: str
    requires: list[str] | UnsetType = UNSET
    former: list[str] | UnsetType = UNSET
    partition: Partition | UnsetType = UNSET
    created_at: datetime
    broker: Raw
    settings: Raw
    paused: bool
    paused_kinds: list[str]
    next_seq: int
    horizon: int
    time: Raw | UnsetType = UNSET
    since: int | UnsetType = UNSET
    last_served: list[tuple[str, int, str]] | UnsetType = UNSET
    commits: list[str]
