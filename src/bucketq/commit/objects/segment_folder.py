"""The segments of one incarnation of a queue, as objects in its store.

``jobs/queue.json`` keeps them under ``jobs/queue/segments/<incarnation>/``::

    jobs/queue/segments/01J…/00000000000000000105-9f86d081884c7d65.jsonl
                             last version that      digest of the bytes
                             may introduce it

and vectors, which say what has left segments, beside them under names that end in ``.gone``, and
rows on results of archived jobs under names that end in ``.results``. Names of segments that were
put under a reservation begin with it, instead of a version.

Guarantees:

* Once ``put`` returns, the object is there, durable and with these bytes. A version of the queue
  names a segment only after that.
* An object is deleted only if no version of the queue can ever name it again.

Reads and writes only keys of exactly this form. Any other object in the folder is never read,
counted or deleted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import blake2b

from bucketq.clock import Clock, new_id
from bucketq.codec.deletion_vector import is_vector_id
from bucketq.codec.result_index import is_result_index_id
from bucketq.codec.segment_file import is_segment_id
from bucketq.commit.objects.segment_sweep import ReadNamed, may_delete
from bucketq.errors import (
    CorruptStateError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import (
    ObjectMissingError,
    ObjectStore,
    ObjectTooShortError,
    PreconditionFailedError,
)
from bucketq.store.queue_folder import folder_of

_SUFFIX = ".jsonl"
_INCARNATION = r"[A-Za-z0-9_-]{1,64}"
"""What may be the name of a folder: no slash, and no dots."""
_PUT_TRIES = 6
"""As many as an archive file gets: a storage that is away for longer fails the spill or the merge,
which is made again later."""
_FIRST_RETRY_S = 0.5
_LAST_RETRY_S = 8.0
"""About sixteen seconds in all: nothing waits for a spill or a merge."""


class SegmentFolder:
    """Puts, reads, lists and deletes the segments of one incarnation of a queue."""

    def __init__(
        self, store: ObjectStore, key: str, incarnation: str, where: str, clock: Clock
    ) -> None:
        """Use the folder of the queue object ``key``; ``where`` is what messages call the queue."""
        self._store = store
        self._root = f"{folder_of(store.url, key)}segments/{incarnation}/"
        self._incarnation = incarnation
        self._where = where
        self._clock = clock

    @property
    def address(self) -> str:
        """The address of the folder, for messages; it ends in a slash."""
        return f"{self._store.url.rstrip('/')}/{self._root}"

    async def put(self, segment_id: str, body: bytes) -> None:
        """Write a segment; after an unknown outcome, again, because the key means these bytes only.

        An object that exists already is read and compared. Usually it is an earlier try, or another
        process has made the same segment. But a proxy may have answered without asking the store,
        and on a disk the process that wrote the file may have died before the name was durable:
        reading it makes it so.

        Raises:
            UnavailableError: The outcome is unknown after several tries.
            StoreRefusedError: The store rejects it.
            CorruptStateError: There is another object under this key.
        """
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        for _ in range(_PUT_TRIES - 1):
            try:
                await self._put_once(segment_id, body)
            except UnavailableError:
                await backoff.wait()
            else:
                return
        await self._put_once(segment_id, body)

    async def read(self, segment_id: str, offset: int, length: int) -> bytes:
        """Read a range of a segment.

        Raises:
            ObjectMissingError: There is no such segment (any more): read the queue object again.
            CorruptStateError: The segment ends before the range does.
            UnavailableError: The storage did not answer.
        """
        try:
            return await self._store.get_range(self._key(segment_id), offset, length)
        except ObjectTooShortError as error:
            message = (
                f"a segment of {self._where} is damaged: {error}; it is left as it is, and only "
                "its own rows are affected (`bucketq doctor --deep` checks all segments)"
            )
            raise CorruptStateError(message) from error

    async def read_whole(self, segment_id: str) -> bytes:
        """Read all of an object, which may be longer or shorter than the segment should be.

        Raises:
            ObjectMissingError: There is no such segment (any more): read the queue object again.
            UnavailableError: The storage did not answer.
        """
        return (await self._store.get(self._key(segment_id))).body

    async def names(self) -> AsyncIterator[str]:
        """List the ids of the segments and vectors that are there, named by the queue or not.

        A listing may be late. So what it shows is a candidate for deletion, and what it does not
        show proves nothing.
        """
        async for info in self._store.list(self._root):
            name = info.key.removeprefix(self._root).removesuffix(_SUFFIX)
            is_ours = is_segment_id(name) or _has_suffix(name)
            if is_ours and info.key == self._key(name):
                yield name

    async def sweep(self, read_named: ReadNamed) -> int:
        """Delete the segments that no version of the queue can name any more; return how many.

        ``segment_sweep`` has the rule.

        Raises:
            UnavailableError: The storage did not answer; sweep again later.
            StoreRefusedError: The store does not list or delete.
        """
        found = [name async for name in self.names()]
        if not found:
            return 0
        # Read after the listing: nothing is read if nothing is there, and what was dropped during
        # the listing is deleted too.
        queue = await read_named()
        if queue.incarnation != self._incarnation:
            return 0
        doomed = [name for name in found if may_delete(name, queue)]
        for name in doomed:
            await self._store.delete(self._key(name))
        return len(doomed)

    async def clear(self) -> int:
        """Delete every segment of this incarnation; return how many.

        Only for one that has ended: its last version was replaced by another incarnation or by a
        tombstone, or a person says that it never began. No incarnation begins twice.

        Raises:
            InvalidRequestError: The incarnation cannot be the name of a folder.
            UnavailableError, StoreRefusedError: As ``sweep``.
        """
        if not re.fullmatch(_INCARNATION, self._incarnation):
            message = f"{self._incarnation!r} is not an incarnation of a queue; nothing was deleted"
            raise InvalidRequestError(message)
        found = [name async for name in self.names()]
        for name in found:
            await self._store.delete(self._key(name))
        return len(found)

    async def probe(self) -> None:
        """Check that segments can be put, read, listed and deleted, with an object of a few bytes.

        It has the form of a segment that no version may introduce, so that the next sweep deletes
        it if this process dies. A sweep may also delete it before it is read: that a store says
        that it is missing is an answer and not a refusal.

        Raises:
            StoreRefusedError: The store refuses one of them; the message says which.
            UnavailableError: The storage did not answer.
        """
        body = f"a trial of access to segments, {new_id(self._clock)}\n".encode()
        name = f"{0:020d}-{blake2b(body, digest_size=8).hexdigest()}"
        with self._explained("written", "creating"):
            await self.put(name, body)
        try:
            with self._explained("read", "reading"):
                part = await self.read(name, 1, len(body) - 1)
        except ObjectMissingError:
            part = body[1:]
        with self._explained("listed", "listing"):
            async for _ in self.names():
                pass
        with self._explained("deleted", "deleting"):
            await self._store.delete(self._key(name))
        if part != body[1:]:
            message = (
                f"{self._store.url} returns other bytes than those that a read of a range asks "
                f"for, so the queue {self._where} cannot keep segments there; use another store"
            )
            raise StoreRefusedError(message)

    async def _put_once(self, segment_id: str, body: bytes) -> None:
        key = self._key(segment_id)
        try:
            await self._store.create(key, body)
        except PreconditionFailedError as error:
            try:
                found = (await self._store.get(key)).body
            except ObjectMissingError:
                message = (
                    f"cannot create {key} in {self._store.url}: it was refused as one that exists, "
                    "but there is none; try again"
                )
                raise UnavailableError(message) from error
            if found != body:
                message = (
                    f"{key} in {self._store.url} is not the segment that its name says: "
                    f"{len(found)} bytes instead of {len(body)}, or others; `bucketq doctor "
                    "--deep` checks all segments"
                )
                raise CorruptStateError(message) from error

    def _key(self, segment_id: str) -> str:
        return f"{self._root}{segment_id}{'' if _has_suffix(segment_id) else _SUFFIX}"

    @contextmanager
    def _explained(self, done: str, doing: str) -> Iterator[None]:
        """Say what a refusal means for the queue, and what to do."""
        try:
            yield
        except StoreRefusedError as error:
            message = (
                f"segments of {self._where} cannot be {done}: {error}; allow {doing} of objects "
                f"whose keys begin with {self._root}"
            )
            raise StoreRefusedError(message) from error


def _has_suffix(name: str) -> bool:
    """Whether the id of an object is the whole of its name."""
    return is_vector_id(name) or is_result_index_id(name)
