"""``SeenObject``: what a register remembers of the object, to reject one that is older.

The errors for an object that was deleted are here too.
"""

from __future__ import annotations

from msgspec import Struct

from bucketq.codec.tombstone import is_tombstone
from bucketq.errors import CorruptStateError, QueueNotFoundError, SupersededError


class SeenObject(Struct, frozen=True):
    """The object when a register last knew it to be current."""

    etag: str
    incarnation: str
    version: int
    commit: str
    first_line: bytes

    def compare(self, now: SeenObject, where: str) -> None:
        """Reject an object that cannot have followed this one."""
        if now.incarnation != self.incarnation:
            message = (
                f"{where} now holds another queue (incarnation {now.incarnation}, it was "
                f"{self.incarnation}): it was restored or created anew; connect again"
            )
            raise SupersededError(message)
        if now.version < self.version:
            message = (
                f"{where} was rolled back from version {self.version} to {now.version}: "
                "bring it back with `bucketq restore`, then connect again"
            )
            raise SupersededError(message)
        if now.version == self.version and now.first_line != self.first_line:
            message = (
                f"{where} holds other content under version {now.version} than was "
                "committed: something else writes this object; find out what before you continue"
            )
            raise CorruptStateError(message)


def refuse_deleted(body: bytes, where: str, *, was_seen: bool) -> None:
    """Reject an object that is what a deletion leaves of a queue until it is finished."""
    if not is_tombstone(body):
        return
    if was_seen:
        raise deleted_in_use(where)
    raise QueueNotFoundError(
        f"{where} is being deleted, or its deletion was interrupted: run `bucketq delete` again to "
        "finish it, or `bucketq create` for a new queue"
    )


def deleted_in_use(where: str) -> SupersededError:
    """Return the error for an object that was there before and is gone."""
    return SupersededError(
        f"{where} was deleted while it was in use; it is not created again from memory: bring it "
        "back with `bucketq restore`, or connect again for a new queue"
    )
