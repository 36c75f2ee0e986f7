"""``HeadingReader``: reads the heading of a queue's object: its version, its broker, its partition.

A client of a broker needs no more, so this imports nothing that decodes jobs. A heading is no base
for a commit.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from bucketq.codec.heading import Heading, read_heading
from bucketq.commit.objects.seen_object import deleted_in_use, refuse_deleted
from bucketq.commit.objects.store_calls import NoAnswerError, StoreCalls, larger_than
from bucketq.model.partitions import Partition, compare
from bucketq.store.base import ObjectMissingError, ObjectStore

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
            SupersededError: There was one, and it was deleted.
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
        except ObjectMissingError as error:
            if self._seen is not None:
                raise deleted_in_use(self.where) from error
            raise
        except NoAnswerError:
            # The next tries have more time, but no more each time: they go on for as long as an
            # outage lasts, and one that hangs must end soon after that.
            self._expected_bytes = larger_than(self._known_bytes)
            raise
