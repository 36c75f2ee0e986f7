"""``open_archive``: the finished jobs of a queue, by the time at which they finished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar, overload

from bucketq.archive.archive_layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.archive.upkeep import collect, prune, sweep
from bucketq.clock import Clock, SystemClock
from bucketq.errors import QueueNotFoundError
from bucketq.queue.job import Job
from bucketq.store.base import ObjectStore
from bucketq.store.url import CredentialProvider, Location, open_store

T = TypeVar("T")


class Archive(Generic[T]):
    """The archive of one queue. It can be read, pruned and cleaned while the queue is in use."""

    def __init__(self, location: Location, payload_type: Any, clock: Clock) -> None:
        self._location = location
        self._store = location.store
        self._layout = Layout.of(location.store.url, location.key)
        self._payload_type = payload_type
        self._clock = clock

    async def __aenter__(self) -> Archive[T]:
        """Return it; ``async with`` closes its connections at the end."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close its connections, unless the store is the caller's own."""
        if not self._location.is_lent:
            await self._store.close()

    async def jobs(
        self,
        since: datetime,
        until: datetime | None = None,
        *,
        kinds: Iterable[str] | str | None = None,
    ) -> AsyncIterator[Job[T]]:
        """Yield the jobs that finished from ``since`` up to but not including ``until`` (now).

        Only the hours that the range touches are listed, and every job comes once, whether or not
        it is compacted. Reading compacted jobs needs pyarrow.
        """
        until = self._clock.now() if until is None else until
        wanted = {kinds} if isinstance(kinds, str) else None if kinds is None else set(kinds)
        async for record in ArchiveReader(self._store, self._layout).jobs(since, until, wanted):
            yield Job(record, self._payload_type)

    async def prune(self, older_than: timedelta) -> int:
        """Delete archive files and compacted files that are older, and return how many."""
        return await prune(self._store, self._layout, self._clock.now() - older_than)

    async def collect(self, since: datetime | None = None) -> int:
        """Delete what crashes left behind, and return how many files.

        These are archive files that repeat others, and files of unfinished compactions.
        """
        now = self._clock.now()
        swept = await sweep(self._store, self._layout, now)
        first = await self._first_hour() if since is None else since
        if first is None:
            return swept
        return swept + await collect(self._store, self._layout, first, now)

    async def _first_hour(self) -> datetime | None:
        async for info in self._store.list(self._layout.root):
            archive_file = self._layout.parse(info.key)
            if archive_file is not None:
                return archive_file.hour.astimezone(UTC)
        return None


@overload
def open_archive(
    url: str,
    *,
    payload_type: type[T],
    store: ObjectStore | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Archive[T]: ...


@overload
def open_archive(
    url: str,
    *,
    store: ObjectStore | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Archive[Any]: ...


def open_archive(
    url: str,
    *,
    payload_type: Any = Any,
    store: ObjectStore | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Archive[Any]:
    """Open the archive of the queue at ``url``; use it as ``async with``.

    The arguments are those of ``connect``.
    """
    location = open_store(url, store=store, credential_provider=credential_provider)
    return Archive(location, payload_type, SystemClock())


async def see_archive(url: str) -> None:
    """Raise ``QueueNotFoundError`` if there is neither a queue nor an archive.

    Otherwise a mistyped address would look like an empty archive.
    """
    location = open_store(url)
    store, key = location.store, location.key
    root = Layout.of(store.url, key).root
    try:
        for prefix in (key, root):
            async for info in store.list(prefix):
                if info.key == key or info.key.startswith(root):
                    return
    finally:
        await store.close()
    message = f"no queue at {location.url}, and no archive of one: check the address"
    raise QueueNotFoundError(message)
