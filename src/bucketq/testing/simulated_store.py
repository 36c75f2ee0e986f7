"""Simulated object storage: durable objects, and links to them that lose and delay requests.

``SimulatedStore`` holds the objects and never fails itself; faults happen on the way.
``store.connect()`` returns a ``StoreLink``, which is the ``ObjectStore`` of one process. A request
is a packet: once sent, it arrives whether or not its sender is alive, frozen or still waiting.
Requests take effect atomically, so the store is linearizable, as real ones are.

``store.history(key)`` is the chain of everything that took effect on a key, in order, with the time
and the process that wrote it: the linearization that a checker uses.

All randomness comes from one stream of the loop's seed. Nothing outside the loop is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Literal

from bucketq.store.base import (
    ObjectInfo,
    ObjectMissingError,
    ObjectTooShortError,
    PreconditionFailedError,
    StoredObject,
    too_short,
)
from bucketq.testing.simulated_clock import EPOCH
from bucketq.testing.store_faults import READ_FAULTS, WRITE_FAULTS, FaultDice, Faults
from bucketq.testing.store_link import LIST_PAGE_SIZE, Direction, StoreLink
from bucketq.testing.virtual_loop import VirtualLoop

__all__ = ["Operation", "SimulatedStore", "StoreCommit", "StoreLink"]

Operation = Literal["create", "replace", "put", "delete"]


@dataclass(frozen=True, slots=True)
class StoreCommit:
    """A write that took effect.

    Attributes:
        number: Counts every commit of the store, from 1.
        key: The object it changed.
        operation: What kind of write it was.
        body: The new bytes of the object; None if it was deleted.
        etag: The etag of these bytes; empty if it was deleted.
        time_s: The virtual time at which it took effect.
        writer: The name of the process that sent it.
    """

    number: int
    key: str
    operation: Operation
    body: bytes | None
    etag: str
    time_s: float
    writer: str


class SimulatedStore:
    """The objects that all processes of a simulation share.

    Attributes:
        loop: The loop whose time and seed it uses.
        injected: How many faults of each name occurred, in the order of first occurrence. Beside
            the names in ``Faults`` there are ``partition`` (a packet was dropped by one) and
            ``sender_died`` (a request was lost because its sender was killed before it had left
            the host).
        commits: Everything that took effect, over all keys.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        faults: Faults | None = None,
        *,
        latency_s: tuple[float, float] = (0.005, 0.08),
        timeout_s: float = 10.0,
        content_etags: bool = False,
        write_interval_s: float = 0.0,
    ) -> None:
        """Make an empty store.

        Args:
            loop: The simulation it is part of.
            faults: The faults; none by default.
            latency_s: Bounds of the time from a request to its answer.
            timeout_s: How long a link waits for an answer before it gives up.
            content_etags: Make etags hashes of the content, as S3 does, so that the same
                bytes have the same etag whenever they come back.
            write_interval_s: The ``write_interval_s`` of its links.
        """
        self.loop = loop
        self.injected: dict[str, int] = {}
        self.commits: list[StoreCommit] = []
        self.latency_s = latency_s
        self.timeout_s = timeout_s
        self.write_interval_s = write_interval_s
        self.rng = loop.stream("store")
        self._content_etags = content_etags
        self._objects: dict[str, StoreCommit] = {}
        self._chains: dict[str, list[StoreCommit]] = {}
        self._links: list[StoreLink] = []
        self._cut: Direction | None = None
        self.set_faults(Faults.none() if faults is None else faults)

    def connect(
        self,
        name: str = "store",
        *,
        latency_s: tuple[float, float] | None = None,
        timeout_s: float | None = None,
    ) -> StoreLink:
        """Open a link, by default with the latency and timeout of the store."""
        link = StoreLink(self, name, latency_s or self.latency_s, timeout_s or self.timeout_s)
        self._links.append(link)
        return link

    def set_faults(self, faults: Faults) -> None:
        """Change the faults of requests that are sent from now on."""
        self.faults = faults
        self.read_dice = FaultDice(faults, READ_FAULTS)
        self.write_dice = FaultDice(faults, WRITE_FAULTS)

    def end_faults(self) -> None:
        """End all faults and partitions.

        Requests that were delayed still arrive late.
        """
        self.set_faults(Faults.none())
        self.heal()

    def partition(self, link: StoreLink | None = None, direction: Direction = "both") -> None:
        """Cut a link, or all of them, for requests, answers or both."""
        if link is None:
            self._cut = direction
        else:
            link.cut = direction

    def heal(self, link: StoreLink | None = None) -> None:
        """End the partition of a link, or all partitions."""
        if link is not None:
            link.cut = None
            return
        self._cut = None
        for each in self._links:
            each.cut = None

    def severed(self, link: StoreLink, way: Direction) -> bool:
        """Whether packets in this direction of this link are dropped now."""
        return bool({"both", way} & {self._cut, link.cut})

    def count(self, fault: str) -> None:
        """Count a fault."""
        self.injected[fault] = self.injected.get(fault, 0) + 1

    # For drivers and checkers: immediate, and without faults.

    def peek(self, key: str) -> StoredObject | None:
        """Return what is stored under a key right now."""
        commit = self._objects.get(key)
        if commit is None or commit.body is None:
            return None
        return StoredObject(commit.body, commit.etag)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that exist right now, in order."""
        return sorted(key for key in self._objects if key.startswith(prefix))

    def history(self, key: str) -> list[StoreCommit]:
        """Return everything that took effect on a key, in order. Do not change it."""
        return self._chains.get(key, [])

    def overwrite(self, key: str, body: bytes) -> None:
        """Replace an object at once, like an operator's edit or rollback."""
        self.put(key, body, self.loop.current_process().name)

    def remove(self, key: str) -> None:
        """Delete an object at once, like an operator."""
        self.delete(key, self.loop.current_process().name)

    # The effects of requests on arrival. Each returns its answer, which may be an error.

    def get(self, key: str) -> StoredObject | ObjectMissingError:
        """Answer a read."""
        return self.peek(key) or ObjectMissingError(f"no object: {key}")

    def get_if_changed(self, key: str, etag: str) -> StoredObject | ObjectMissingError | None:
        """Answer a conditional read."""
        commit = self._objects.get(key)
        return None if commit is not None and commit.etag == etag else self.get(key)

    def get_range(
        self, key: str, offset: int, length: int
    ) -> bytes | ObjectMissingError | ObjectTooShortError:
        """Answer a read of a range."""
        found = self.get(key)
        if not isinstance(found, StoredObject):
            return found
        part = found.body[offset : offset + length]
        return part if len(part) == length else too_short(key, "the store", offset, length)

    def create(self, key: str, body: bytes, writer: str) -> str | PreconditionFailedError:
        """Write an object that must not exist."""
        if key in self._objects:
            return PreconditionFailedError(f"object exists: {key}")
        return self._commit(key, "create", body, writer)

    def replace(
        self, key: str, body: bytes, etag: str, writer: str
    ) -> str | PreconditionFailedError | ObjectMissingError:
        """Write an object that must have an etag."""
        commit = self._objects.get(key)
        if commit is None:
            return ObjectMissingError(f"no object: {key}")
        if commit.etag != etag:
            return PreconditionFailedError(f"object changed: {key} has {commit.etag}, not {etag}")
        return self._commit(key, "replace", body, writer)

    def put(self, key: str, body: bytes, writer: str) -> str:
        """Write an object."""
        return self._commit(key, "put", body, writer)

    def delete(self, key: str, writer: str) -> None:
        """Delete an object."""
        if key in self._objects:
            self._commit(key, "delete", None, writer)

    def page(self, prefix: str, after: str) -> list[ObjectInfo]:
        """List the next keys after one."""
        keys = [key for key in self.keys(prefix) if key > after][:LIST_PAGE_SIZE]
        return [
            ObjectInfo(
                key,
                len(self._objects[key].body or b""),
                EPOCH + timedelta(seconds=self._objects[key].time_s),
            )
            for key in keys
        ]

    def _commit(self, key: str, operation: Operation, body: bytes | None, writer: str) -> str:
        """Apply a write and append it to the history."""
        number = len(self.commits) + 1
        if body is None:
            etag = ""
        elif self._content_etags:
            etag = blake2b(body, digest_size=16).hexdigest()
        else:
            etag = f"etag-{number}"
        commit = StoreCommit(number, key, operation, body, etag, self.loop.time(), writer)
        if body is None:
            del self._objects[key]
        else:
            self._objects[key] = commit
        self.commits.append(commit)
        self._chains.setdefault(key, []).append(commit)
        return etag
