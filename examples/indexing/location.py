"""Where log and index are stored: beside the queue, in the same store.

For ``s3://bucket/docs/queue.json`` the log is under ``docs/wal/`` and the index under
``docs/index/``. bucketq's own ``ObjectStore`` reads and writes them: on every store that can hold a
queue it creates an object only if there is none, and replaces it only if no other process has, and
a log and an index need no more.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bucketq.errors import InvalidRequestError
from bucketq.store.base import ObjectStore
from bucketq.store.url import open_store

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True)
class Location:
    """A store, and the folder in it."""

    store: ObjectStore
    folder: str
    """The prefix of every key: empty, or with a slash at its end."""
    url: str
    """The address of the queue."""

    def wal(self, namespace: str) -> str:
        """Return the prefix of the keys of a namespace's log."""
        return f"{self.folder}wal/{_checked(namespace)}/"

    def index(self, namespace: str) -> str:
        """Return the prefix of the keys of a namespace's index."""
        return f"{self.folder}index/{_checked(namespace)}/"

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have documents."""
        root = f"{self.folder}wal/"
        found = {
            info.key.removeprefix(root).partition("/")[0]: None
            async for info in self.store.list(root)
        }
        return list(found)


@asynccontextmanager
async def open_location(url: str) -> AsyncIterator[Location]:
    """Open the store of the queue at an address."""
    location = open_store(url)
    folder, slash, _ = location.key.rpartition("/")
    try:
        yield Location(location.store, folder + slash, location.url)
    finally:
        await location.store.close()


def _checked(namespace: str) -> str:
    """Reject a name that could lead to other keys."""
    if not _NAMESPACE.fullmatch(namespace):
        message = (
            f"{namespace!r} cannot be a namespace: it has up to 64 small letters, digits and '-'"
        )
        raise InvalidRequestError(message)
    return namespace
