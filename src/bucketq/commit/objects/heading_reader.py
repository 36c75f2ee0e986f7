"""``HeadingReader``: reads from a queue's object which broker serves it, and nothing else.

It is all that a client of a broker needs of the object, and imports nothing that reads or writes
jobs. What it returns is no base for a commit.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from bucketq.codec.heading import Heading, read_heading
from bucketq.codec.tombstone import is_tombstone
from bucketq.commit.objects.store_calls import StoreCalls, larger_than
from bucketq.errors import QueueNotFoundError, SupersededError, UnavailableError
from bucketq.model.partitions import Partition, compare
from bucketq.store.base import ObjectStore

A = TypeVar("A")


class HeadingReader:
    """Reads the heading of one object again and again."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        where: str,
        partition: Partition | None = None,
        calls: StoreCalls | None = None,
    ) -> None:
        """Read the object ``key``, which must be the ``partition``; None: it has no partitions.

        ``where`` is what messages call it.
        """
        self._store = store
        self._key = key
        self.where = where
        self.partition = partition
        """Which partition of a queue it is, and of which queue once that was read."""
        self._calls = calls or StoreCalls(where)
        self._seen: tuple[str, Heading] | None = None
        self._known_bytes = self._expected_bytes = 0

    async def read(self) -> Heading:
        """Read the heading as it is now.

        Raises:
            ObjectMissingError: There is no queue.
            SupersededError: There was one, and it is being deleted.
        """
        seen = self._seen
        if seen is None:
            found = await self._ask(self._store.get(self._key))
        else:
            changed = await self._ask(self._store.get_if_changed(self._key, seen[0]))
            if changed is None:
                self._expected_bytes = self._known_bytes
                return seen[1]
            found = changed
        self._known_bytes = self._expected_bytes = len(found.body)
        refuse_deleted(found.body, self.where, was_seen=seen is not None)
        heading = read_heading(found.body, self.where)
        self.partition = compare(heading.partition, self.partition, self.where)
        self._seen = (found.etag, heading)
        return heading

    async def _ask(self, answer: Awaitable[A]) -> A:
        try:
            return await self._calls.ask(answer, self._expected_bytes)
        except UnavailableError:
            # The next tries have more time, but no more each time: they go on for as long as an
            # outage lasts, and one that hangs must end soon after that.
            if self._calls.timed_out:
                self._expected_bytes = larger_than(self._known_bytes)
            raise


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
