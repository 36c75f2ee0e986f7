"""The side objects of a queue in its store: large payloads and results, in parts.

``jobs/queue.json`` keeps them under ``jobs/queue/payloads/<incarnation>/``::

    jobs/queue/payloads/01J…/00000000000000001105-<digest>-<nonce>.00000
                             last version that             part
                             may introduce it

Before the first part of one is written, a *marker* is put beside it, which names the job that is to
name it. The client deletes the marker when the commit that names the object has landed. So a
crash leaves a marker behind, and a sweep reads markers only, and not the whole queue and archive.

Guarantees:

* Once ``put_part`` returns, the part is there, durable and with these bytes.
* Parts of one object are written by one client only: its name has random digits.

Reads and writes only keys of exactly this form; any other object in the folder is left alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from bucketq.archive.archive_layout import Layout
from bucketq.clock import Clock
from bucketq.errors import CorruptStateError, UnavailableError
from bucketq.model.records import JobRecord
from bucketq.model.side_objects import Content, SideRef, is_object_name, refs_of, until_of
from bucketq.store.backoff import RetryBackoff
from bucketq.store.base import ObjectMissingError, ObjectStore, PreconditionFailedError
from bucketq.store.queue_folder import shared_folder_of

A = TypeVar("A")

_PART = r"(.+)\.(\d{5})"
_PENDING = "pending/"
_TRIES = 6
_FIRST_RETRY_S = 0.1
_LAST_RETRY_S = 4.0
"""About eight seconds in all; after that the client of the part tries again, or gives up."""
_AT_ONCE = 8
"""How many parts are deleted at once: enough to hide the latency of a store."""


class Marker(Struct, frozen=True, kw_only=True):
    """A side object that was being written, and the job that is to name it."""

    object: str
    job: str
    content: Content
    at: datetime


class SideFolder:
    """Puts, reads, lists and deletes the side objects of one queue."""

    def __init__(self, store: ObjectStore, root: str, clock: Clock) -> None:
        """Use the folder whose keys begin with ``root``."""
        self._store = store
        self._root = root
        self._clock = clock

    @classmethod
    def of(cls, store: ObjectStore, key: str, clock: Clock) -> SideFolder:
        """Return the folder of a queue object."""
        return cls(store, f"{shared_folder_of(store.url, key)}payloads/", clock)

    @classmethod
    def beside(cls, store: ObjectStore, layout: Layout, clock: Clock) -> SideFolder:
        """Return the folder of the queue that an archive belongs to."""
        return cls(store, f"{layout.root.removesuffix('archive/')}payloads/", clock)

    @property
    def address(self) -> str:
        """The address of the folder, for messages; it ends in a slash."""
        return f"{self._store.url.rstrip('/')}/{self._root}"

    async def mark(self, name: str, job: str, content: Content) -> None:
        """Put the marker of an object, before its first part.

        Raises:
            UnavailableError: The outcome is unknown after several tries.
            StoreRefusedError: The store rejects it.
        """
        marker = Marker(object=name, job=job, content=content, at=self._clock.now())
        body, key = msgspec.json.encode(marker), self._marker_key(name)
        await self._try(lambda: self._store.put(key, body))

    async def unmark(self, name: str) -> None:
        """Delete the marker of an object, because a version of the queue names it."""
        await self._try(lambda: self._store.delete(self._marker_key(name)))

    async def put_marked(
        self, name: str, part: int, data: bytes, job: str, content: Content
    ) -> None:
        """Write a part of an object that no version names yet. Raises: as ``put_part``.

        The marker is put before the first part, and again before a part is written again: a sweep
        may have deleted both meanwhile, and would not find what comes after that.
        """
        is_first = part > 0

        async def put() -> None:
            nonlocal is_first
            if not is_first:
                await self.mark(name, job, content)
            is_first = False
            await self._put_once(self._key(name, part), data)

        await self._try(put)

    async def put_part(self, name: str, part: int, data: bytes) -> None:
        """Write a part; after an unknown outcome, again.

        Raises:
            UnavailableError: The outcome is unknown after several tries.
            StoreRefusedError: The store rejects it.
            CorruptStateError: There are other bytes under this key.
        """
        await self._try(lambda: self._put_once(self._key(name, part), data))

    async def read_part(self, name: str, part: int) -> bytes:
        """Read a part.

        Raises:
            ObjectMissingError: There is none.
            UnavailableError: The storage did not answer, after several tries.
        """
        return (await self._try(lambda: self._store.get(self._key(name, part)))).body

    async def markers(self, incarnation: str) -> AsyncIterator[str]:
        """List the objects of an incarnation that were being written, by their markers."""
        prefix = f"{self._root}{incarnation}/{_PENDING}"
        async for info in self._store.list(prefix):
            name = f"{incarnation}/{info.key.removeprefix(prefix).removesuffix('.json')}"
            if is_object_name(name) and info.key == self._marker_key(name):
                yield name

    async def read_marker(self, name: str) -> Marker | None:
        """Read a marker; None if it was deleted meanwhile.

        Raises:
            CorruptStateError: It is damaged.
        """
        key = self._marker_key(name)
        try:
            body = (await self._store.get(key)).body
            return msgspec.json.decode(body, type=Marker)
        except ObjectMissingError:
            return None
        except msgspec.MsgspecError as error:
            raise CorruptStateError(f"{key} cannot be decoded: {error}") from error

    async def parts(self, incarnation: str) -> AsyncIterator[tuple[str, int, int]]:
        """List the parts of an incarnation's objects: the name, the number and the size."""
        prefix = f"{self._root}{incarnation}/"
        async for info in self._store.list(prefix):
            found = re.fullmatch(_PART, info.key.removeprefix(self._root))
            if found is not None and is_object_name(found[1]):
                yield found[1], int(found[2]), info.size_bytes

    async def is_used(self) -> bool:
        """Whether there is any object in the folder."""
        async for _ in self._store.list(self._root):
            return True
        return False

    async def has(self, incarnation: str) -> bool:
        """Whether there is an object of an incarnation."""
        async for _ in self.parts(incarnation):
            return True
        return False

    async def delete(self, name: str) -> int:
        """Delete an object and its marker; return how many parts it had.

        The marker is the last to go, so that an interrupted deletion can be finished.
        """
        prefix = f"{self._root}{name}."
        keys = [info.key async for info in self._store.list(prefix)]
        keys = [key for key in keys if re.fullmatch(_PART, key.removeprefix(self._root))]
        for start in range(0, len(keys), _AT_ONCE):
            await asyncio.gather(*map(self._store.delete, keys[start : start + _AT_ONCE]))
        await self._store.delete(self._marker_key(name))
        return len(keys)

    async def delete_named(self, jobs: Iterable[JobRecord]) -> int:
        """Delete what lines of the archive name that are deleted next; return how many objects."""
        refs = {ref.object for job in jobs for ref in refs_of(job)}
        for name in sorted(refs):
            await self.delete(name)
        return len(refs)

    async def clear(self, incarnation: str, keep: Iterable[str] = ()) -> int:
        """Delete the objects of an incarnation that has ended, but for some; return how many."""
        kept = set(keep)
        names = {name async for name, _, _ in self.parts(incarnation)}
        names |= {name async for name in self.markers(incarnation)}
        doomed = sorted(names - kept)
        for name in doomed:
            await self.delete(name)
        return len(doomed)

    async def sweep(self, names: Iterable[str], version: int, named: Iterable[str]) -> int:
        """Delete objects that no version from ``version`` on can introduce, and that are not named.

        ``named`` has all that the version itself, and the archive that was read after it, name.
        """
        kept = set(named)
        doomed = [name for name in names if name not in kept and version >= until_of(name)]
        for name in doomed:
            await self.delete(name)
        return len(doomed)

    async def copy_to(self, other: SideFolder, ref: SideRef, name: str) -> None:
        """Copy an object to another folder, under another name.

        Raises:
            ObjectMissingError: A part is missing.
        """
        for part in range(ref.parts):
            await other.put_part(name, part, await self.read_part(ref.object, part))

    async def _put_once(self, key: str, data: bytes) -> None:
        try:
            await self._store.create(key, data)
        except PreconditionFailedError as error:
            try:
                found = (await self._store.get(key)).body
            except ObjectMissingError:
                message = f"cannot create {key} in {self._store.url}: try again"
                raise UnavailableError(message) from error
            if found != data:
                message = f"{key} in {self._store.url} holds other bytes than those to be written"
                raise CorruptStateError(message) from error

    async def _try(self, call: Callable[[], Awaitable[A]]) -> A:
        backoff = RetryBackoff(self._clock, _FIRST_RETRY_S, _LAST_RETRY_S)
        for _ in range(_TRIES - 1):
            try:
                return await call()
            except UnavailableError:
                await backoff.wait()
        return await call()

    def _key(self, name: str, part: int) -> str:
        return f"{self._root}{name}.{part:05d}"

    def _marker_key(self, name: str) -> str:
        incarnation, _, rest = name.partition("/")
        return f"{self._root}{incarnation}/{_PENDING}{rest}.json"
