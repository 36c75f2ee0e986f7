"""Where the queues of the contract tests live, and how they are opened.

A new kind of queue is one more entry in ``PLACES``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bucketq
from bucketq.client.blocking import UnopenedBlockingQueue
from bucketq.client.connect import UnopenedQueue
from bucketq.client.connect_arguments import Mode
from bucketq.store.base import StoredObject
from bucketq.store.url import open_store
from tests.contract.brokers import NAME, Brokers

_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """The address of a queue, and how it is used."""

    url: str
    mode: Mode

    def connect(self, **options: Any) -> UnopenedQueue[Any]:
        return bucketq.connect(self.url, mode=self.mode, **options)

    def connect_sync(self, **options: Any) -> UnopenedBlockingQueue[Any]:
        return bucketq.connect_sync(self.url, mode=self.mode, **options)

    def connect_url(self) -> str:
        """The address with which a client of its own gets there."""
        return self.url

    async def stored(self) -> StoredObject:
        """What the storage holds now: bytes and etag."""
        location = open_store(self.url)
        try:
            return await location.store.get(location.key)
        finally:
            await location.store.close()


@dataclass(frozen=True)
class ServedPlace(Place):
    """A queue that is reached through a broker of another process.

    The broker is started with the first client that may create the queue, for it creates it.
    """

    brokers: Brokers

    def connect(self, **options: Any) -> UnopenedQueue[Any]:
        return bucketq.connect(self._address(**options), mode=self.mode, **options)

    def connect_sync(self, **options: Any) -> UnopenedBlockingQueue[Any]:
        return bucketq.connect_sync(self._address(**options), mode=self.mode, **options)

    def connect_url(self) -> str:
        return self._address()

    def _address(self, *, create: bool = True, **_: Any) -> str:
        if create:
            self.brokers.serve(self.url)
        return self.url


@dataclass(frozen=True)
class AddressPlace(ServedPlace):
    """The same, for clients that know the address of the broker and nothing else."""

    def _address(self, *, create: bool = True, **_: Any) -> str:
        if create or self.brokers.is_serving(self.url):
            return f"bucketq://{self.brokers.serve(self.url)}/{NAME}"
        return f"bucketq://{self.brokers.serve('memory://another')}/not-served"


def in_memory(mode: Mode, options: str = "") -> Place:
    return Place(f"memory://contract-{next(_numbers)}{options}", mode)


def in_a_file(folder: Path) -> str:
    return (folder / "queue.json").as_uri()


PLACES: dict[str, Callable[[Path, Brokers], Place]] = {
    "direct-memory": lambda _folder, _brokers: in_memory("direct"),
    "embedded-memory": lambda _folder, _brokers: in_memory("embedded"),
    "direct-file": lambda folder, _: Place(in_a_file(folder), "direct"),
    "embedded-file": lambda folder, _: Place(in_a_file(folder), "embedded"),
    "auto-file": lambda folder, _: Place(in_a_file(folder), "auto"),
    "remote-file": lambda folder, brokers: ServedPlace(in_a_file(folder), "remote", brokers),
    "address-file": lambda folder, brokers: AddressPlace(in_a_file(folder), "auto", brokers),
    "one-partition": lambda _folder, _brokers: in_memory("embedded", "?partitions=1"),
    "four-partitions": lambda _folder, _brokers: in_memory("embedded", "?partitions=4"),
    "four-direct": lambda folder, _: Place(in_a_file(folder) + "?partitions=4", "direct"),
    "four-remote": lambda folder, brokers: AddressPlace(
        in_a_file(folder) + "?partitions=4", "auto", brokers
    ),
}
