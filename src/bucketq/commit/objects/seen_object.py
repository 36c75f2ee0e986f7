"""``SeenObject``: what a register remembers of the object, to reject one that is older."""

from __future__ import annotations

from msgspec import Struct

from bucketq.errors import CorruptStateError, SupersededError


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
