"""What a queue needs from storage: the ``ObjectStore`` protocol and how its answers read.

Every backend passes ``tests/contract/test_store.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from bucketq.errors import BucketQError, InvalidRequestError, UnavailableError


class PreconditionFailedError(BucketQError):
    """The object is not in the state that the write demanded.

    It does not say that the write had no effect: a retry somewhere below us can have
    landed first and then conflicted with itself.
    """


class ObjectMissingError(BucketQError):
    """There is no object under this key."""


class ObjectTooShortError(BucketQError):
    """The object ends before the range that was to be read."""


class LockHeldError(UnavailableError):
    """Another process holds a lock without which no process can write; this write changed nothing.

    The store can be read meanwhile.
    """


class StoredObject(Struct, frozen=True):
    """An object's bytes, and the version tag that a replacement of just these must show."""

    body: bytes
    etag: str


class ObjectInfo(Struct, frozen=True):
    """A line of a listing."""

    key: str
    size_bytes: int
    modified_at: datetime


class FolderListing(NamedTuple):
    """What is directly in a folder."""

    objects: list[ObjectInfo]
    folders: list[str]
    """Keys that end in a slash."""


class ObjectStore(Protocol):
    """What a queue needs from storage.

    Creating and replacing are two methods, because one method with an optional version
    reads "no version" as "create" in one backend and "overwrite whatever is there" in
    another, and the second loses the queue.

    Any method may raise ``UnavailableError``. After a write it means *unknown*, not
    *failed*: the object may have changed, or change later, and only the answer been lost.
    Any method may raise ``StoreRefusedError``, which is final: *this* call changed nothing
    and never will.

    What a read returns is durable, like what a write that was answered has put there: queues
    acknowledge requests on the strength of either. Any method may raise ``NotDurableError`` if
    that cannot be said of it; the store is of no more use then.

    An etag is never used twice for different bytes of one key.
    """

    @property
    def url(self) -> str:
        """The address of this store, for messages; it never holds a secret."""
        ...

    @property
    def write_interval_s(self) -> float:
        """The pause that the provider wants between two writes of one object; often 0."""
        ...

    async def get(self, key: str) -> StoredObject:
        """Read an object. Raises ``ObjectMissingError``."""
        ...

    async def get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        """Read the object if its etag differs; return None if it is unchanged.

        Raises ``ObjectMissingError``.
        """
        ...

    async def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Read ``length`` bytes of an object, at least one, from ``offset`` on.

        It returns all of them or raises. There is no etag, so two ranges of an object that is
        replaced may belong to two versions: this is for objects that never change.

        Raises ``ObjectMissingError``, and ``ObjectTooShortError`` if the object ends before the
        range does.
        """
        ...

    async def create(self, key: str, body: bytes) -> str:
        """Write an object that must not exist yet; return its etag.

        Raises ``PreconditionFailedError`` if it exists.
        """
        ...

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Replace an object that must still have ``etag``; return its new one.

        Raises ``PreconditionFailedError`` if it has another, ``ObjectMissingError`` if there is
        none.
        """
        ...

    async def put(self, key: str, body: bytes) -> str:
        """Create or overwrite an object; for keys whose content never differs."""
        ...

    async def delete(self, key: str) -> None:
        """Delete an object. Does nothing if it does not exist."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """List the objects whose keys begin with ``prefix``, in order of their keys."""
        ...

    async def close(self) -> None:
        """Close connections. A second call does nothing."""
        ...


class FolderStore(ObjectStore, Protocol):
    """A store whose keys form folders, as those of files and of clouds do."""

    async def list_folder(self, folder: str) -> FolderListing:
        """List what is directly in a folder, which ends in a slash; the topmost one is empty."""
        ...


def check_range(offset: int, length: int) -> None:
    """Refuse a range that no object can have."""
    if offset < 0 or length < 1:
        raise InvalidRequestError(
            f"{length} bytes from {offset} on are not a range; read at least one byte, from 0 on"
        )


def too_short(key: str, url: str, offset: int, length: int) -> ObjectTooShortError:
    """Return the error of an object that ends before a range does."""
    return ObjectTooShortError(
        f"{key} in {url} ends before byte {offset + length}: it was cut off, or is another object "
        "than expected"
    )
