"""Finds the queues under an address that ends in a slash, like ``s3://bucket/jobs/``.

A queue is an object whose name ends in ``.json`` and that begins as bucketq's objects do. Folders
are searched too, but not those of queues themselves: there may be millions of objects in them.
Whether an object is a queue is read once, and again when it has changed.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, cast
from urllib.parse import quote

from bucketq.errors import InvalidRequestError
from bucketq.store.base import FolderStore, ObjectInfo, ObjectMissingError, ObjectTooShortError
from bucketq.store.queue_folder import folder_of
from bucketq.store.url import open_store

_BEGINNING = b'{"format":'
_DEEPEST = 16
"""How many folders are searched below each other: deeper ones are hardly meant."""
_PROBE = "queue.json"


class FoundQueue(NamedTuple):
    """A queue under a folder."""

    path: str
    """Its key below the folder."""
    url: str
    stamp: tuple[int, datetime]
    """Its size and when it was last written: other ones are another version."""

    @property
    def name(self) -> str:
        """The path without the ending; ``mail/queue.json`` is called ``mail``."""
        stem = self.path.removesuffix(".json")
        return stem.removesuffix("/queue") if stem.endswith("/queue") else stem


def is_folder(url: str) -> bool:
    """Whether an address names a folder of queues: its path ends in a slash."""
    return url.partition("?")[0].endswith("/") and not url.startswith("memory:")


class QueueFolder:
    """The queues under one address."""

    def __init__(self, url: str) -> None:
        """Open the store. Raises ``InvalidRequestError`` if the address is not one of a folder."""
        if not is_folder(url):
            open_store(url)  # It may be wrong in another way.
            raise InvalidRequestError(
                f"{url} is the address of one queue: that of a folder of queues ends in a slash, "
                "like s3://bucket/jobs/"
            )
        self.url, _, self._options = url.partition("?")
        location = open_store(self._url_of(_PROBE))
        self._store = cast("FolderStore", location.store)
        self._others: dict[str, tuple[int, datetime]] = {}
        """Objects that are no queues."""
        self._queues = set[str]()

    async def find(self) -> list[FoundQueue]:
        """Return the queues that are there now, in the order of their paths."""
        found = list[FoundQueue]()
        await self._search("", found, _DEEPEST)
        self._queues = {each.path for each in found}
        return sorted(found)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def _search(self, folder: str, found: list[FoundQueue], deeper: int) -> None:
        objects, folders = await self._store.list_folder(folder)
        own = set[str]()
        for info in objects:
            if info.key.endswith(".json") and await self._is_queue(info):
                stamp = (info.size_bytes, info.modified_at)
                found.append(FoundQueue(info.key, self._url_of(info.key), stamp))
                own.add(folder_of(self._store.url, info.key))
        for each in folders:
            if each not in own and deeper:
                await self._search(each, found, deeper - 1)

    async def _is_queue(self, info: ObjectInfo) -> bool:
        if info.key in self._queues:
            return True
        stamp = (info.size_bytes, info.modified_at)
        if self._others.get(info.key) == stamp:
            return False
        try:
            beginning = await self._store.get_range(info.key, 0, len(_BEGINNING))
        except (ObjectMissingError, ObjectTooShortError):
            return False
        if beginning != _BEGINNING:
            self._others[info.key] = stamp
            return False
        self._others.pop(info.key, None)
        return True

    def _url_of(self, key: str) -> str:
        return self.url + quote(key) + (f"?{self._options}" if self._options else "")
