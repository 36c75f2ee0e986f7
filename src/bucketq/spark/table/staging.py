"""Where rows wait between the executors, which wrote them, and the driver, which publishes them.

Few rows travel in the message that a task sends to the driver. Many are put in an object beside the
queue, ``<queue>/staged/<write>!<partition>-<task>-<digest>.jsonl``, which nobody reads but the
driver of that write. A task that is repeated stages anew, under another name; the driver reads what
the messages name, and then removes all that the write has staged. A task may stage when its write
has failed already, and a driver may be killed: what that leaves is removed by a later write.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b

from bucketq.archive.layout import folder_of
from bucketq.client.connect import BROKERS
from bucketq.clock import SystemClock
from bucketq.errors import BucketQError, CorruptStateError, UnavailableError
from bucketq.store.base import ObjectMissingError
from bucketq.store.url import Location, open_store

INLINE_BYTES = 1024 * 1024
"""What goes in a message: Spark's driver holds those of all tasks at once."""
ABANDONED_AFTER = timedelta(days=7)
"""No write takes so long, whatever the clocks say."""
_TRIES = 3
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Parcel:
    """The rows of a task, or where they are."""

    body: bytes | None = None
    key: str | None = None
    digest: str = ""


@dataclass(frozen=True)
class Staging:
    """The staged rows of one write."""

    url: str
    write_id: str
    inline_bytes: int = INLINE_BYTES

    def stage(self, body: bytes, partition: int, task: int) -> Parcel:
        """Keep rows until they are fetched. Through a broker they always go in the message."""
        if len(body) <= self.inline_bytes or self.url.startswith(BROKERS):
            return Parcel(body)
        digest = _digest(body)
        return asyncio.run(self._put(body, f"{partition:06d}-{task}-{digest}.jsonl", digest))

    def fetch(self, parcel: Parcel) -> bytes:
        """Get back what was staged."""
        if parcel.body is not None:
            return parcel.body
        found: list[bytes] = []
        asyncio.run(self._get(parcel, found))
        return found[0]

    def clear(self) -> None:
        """Remove all that this write has staged, of failed tasks as well, and what is very old.

        What cannot be removed now harms nobody, and is no reason to call the write a failure.
        """
        if not self.url.startswith(BROKERS):
            with suppress(BucketQError):
                asyncio.run(self._clear())

    async def _put(self, body: bytes, name: str, digest: str) -> Parcel:
        location = open_store(self.url)
        key = f"{self._prefix(location)}{name}"
        try:
            for tries_left in range(_TRIES - 1, -1, -1):
                try:
                    await location.store.put(key, body)
                    break
                except UnavailableError:
                    if not tries_left:
                        raise
                    await asyncio.sleep(_PAUSE_S)
        finally:
            await location.store.close()
        return Parcel(key=key, digest=digest)

    async def _get(self, parcel: Parcel, found: list[bytes]) -> None:
        """Add to ``found`` what was staged.

        It is not returned, because ``asyncio.run`` has what a task returns written out, for a
        message that nobody gets to see, and for many bytes that takes longer than to read them.
        """
        assert parcel.key is not None  # noqa: S101 - the other form of a parcel
        location = open_store(self.url)
        try:
            body = (await location.store.get(parcel.key)).body
        except ObjectMissingError as error:
            message = (
                f"the staged rows {parcel.key} are gone, so nothing more of this write can be "
                "pushed: write again, and let nobody remove objects under staged/ meanwhile"
            )
            raise CorruptStateError(message) from error
        finally:
            await location.store.close()
        if _digest(body) != parcel.digest:
            message = f"the staged rows {parcel.key} are not those that were staged: write again"
            raise CorruptStateError(message)
        found.append(body)

    async def _clear(self) -> None:
        location = open_store(self.url)
        try:
            own, long_ago = self._prefix(location), SystemClock().now() - ABANDONED_AFTER
            keys = [
                info.key
                async for info in location.store.list(_folder(location))
                if info.key.startswith(own) or info.modified_at < long_ago
            ]
            for key in keys:
                await location.store.delete(key)
        finally:
            await location.store.close()

    def _prefix(self, location: Location) -> str:
        """What the keys of this write begin with, and those of no other: no id has a ``!``.

        Not a folder for each write, because on a disk it would stay behind with its lock.
        """
        return f"{_folder(location)}{self.write_id}!"


def _folder(location: Location) -> str:
    return f"{folder_of(location.store.url, location.key)}staged/"


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=16).hexdigest()
