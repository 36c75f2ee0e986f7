"""The fields of the object, in the order in which they are written."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Raw, Struct, UnsetType

FORMAT = 1
"""The format that this code writes. A newer one is refused, an older one is upgraded."""

OPENINGS = {
    "sessions": b',\n"sessions":[',
    "keys": b'\n],"keys":[',
    "tokens": b'\n],"tokens":[',
    "consumers": b'\n],"consumers":[',
    "writers": b'\n],"writers":[',
    "jobs": b'\n],"jobs":[',
}
"""The text before the rows of each table, in the order of the tables."""
COMMA = b","
SEPARATOR = COMMA + b"\n"
END = b"\n]}\n"
TABLES = tuple(OPENINGS)
OPTIONAL = frozenset({"tokens", "consumers", "writers"})
"""Tables that are left out if they are empty."""


class Head(Struct, frozen=True, kw_only=True):
    """The fields of the object itself, on its second line."""

    version: int
    commit: str
    incarnation: str
    created_at: datetime
    broker: Raw
    settings: Raw
    paused: bool
    paused_kinds: list[str]
    next_seq: int
    horizon: int
    time: Raw | UnsetType = UNSET
    commits: list[str]
