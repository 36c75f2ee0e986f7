"""The few bytes that replace a queue for the moment before its object is deleted.

They are not a queue, so a process that opens the object meanwhile neither uses nor creates one.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class _Tombstone(msgspec.Struct):
    deleted_at: datetime
    commit: str


def tombstone(deleted_at: datetime, commit: str) -> bytes:
    """Encode a tombstone; ``commit`` makes it unlike every other."""
    return msgspec.json.encode(_Tombstone(deleted_at, commit)) + b"\n"


def is_tombstone(body: bytes) -> bool:
    """Whether a deletion is between its two steps, or was interrupted there."""
    if not body.startswith(b'{"deleted_at"'):
        return False  # A queue may be large, and is not decoded for this.
    try:
        msgspec.json.decode(body, type=_Tombstone)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
