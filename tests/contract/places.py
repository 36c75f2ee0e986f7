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
from bucketq.client.blocking import BlockingConnection
from bucketq.client.connect import Connection, Mode
from bucketq.store.base import StoredObject
from bucketq.store.url import open_store

_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """The address of a queue and the way in which it is used."""

    url: str
    mode: Mode

    def connect(self, **options: Any) -> Connection[Any]:
        return bucketq.connect(self.url, mode=self.mode, **options)

    def connect_sync(self, **options: Any) -> BlockingConnection[Any]:
        return bucketq.connect_sync(self.url, mode=self.mode, **options)

    async def stored(self) -> StoredObject:
        """What the storage holds now: bytes and etag."""
        location = open_store(self.url)
        try:
            return await location.store.get(location.key)
        finally:
            await location.store.close()


def in_memory(mode: Mode, _: Path) -> Place:
    return Place(f"memory://contract-{next(_numbers)}", mode)


def in_a_file(mode: Mode, folder: Path) -> Place:
    return Place((folder / "queue.json").as_uri(), mode)


PLACES: dict[str, Callable[[Path], Place]] = {
    "direct-memory": lambda folder: in_memory("direct", folder),
    "embedded-memory": lambda folder: in_memory("embedded", folder),
    "direct-file": lambda folder: in_a_file("direct", folder),
    "embedded-file": lambda folder: in_a_file("embedded", folder),
    "auto-file": lambda folder: in_a_file("auto", folder),
}
