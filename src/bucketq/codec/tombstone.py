"""The few bytes that replace a queue until everything that belongs to it is deleted.

They are not a queue, so a process that opens the object meanwhile neither uses nor creates one.
They say what is to be deleted: the segments of these incarnations and, if it was asked for, the
archive. So a deletion that was interrupted can be finished by another process, and one that was
frozen deletes nothing of a later queue.
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left of a queue while it is being deleted."""

    deleted_at: datetime
    commit: str
    """Makes it unlike every other."""
    version: int = 0
    """The last version of the queue; 0: it could not be read, or older code has deleted it."""
    incarnation: str = ""
    """The incarnation that was deleted; empty: as for the version."""
    former: tuple[str, ...] = ()
    """Earlier incarnations of which there may be segments left."""
    archive: bool = False
    """Whether the archive is to be deleted too."""

    @property
    def incarnations(self) -> tuple[str, ...]:
        """The incarnations whose segments may be deleted."""
        return (*self.former, self.incarnation) if self.incarnation else self.former

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        return msgspec.json.encode(self) + b"\n"


def read_tombstone(body: bytes) -> Tombstone | None:
    """Decode a tombstone; None if the object is something else."""
    if not body.startswith(b'{"deleted_at"'):
        return None  # A queue may be large, and is not decoded for this.
    try:
        return msgspec.json.decode(body, type=Tombstone)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_tombstone(body: bytes) -> bool:
    """Whether a deletion is in progress, or was interrupted."""
    return read_tombstone(body) is not None
