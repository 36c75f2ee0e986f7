"""``FolderWatch``: serves every queue under a folder, those too that are created later.

The folder is listed again and again. A queue that cannot be served is reported once, and tried
again when its object has changed; it does not affect the others.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import NamedTuple

from bucketq.broker.broker import Broker
from bucketq.broker.server import Server
from bucketq.clock import Clock
from bucketq.commit.upkeep.transient_faults import TransientFault
from bucketq.errors import BucketQError, StoreRefusedError, UnavailableError
from bucketq.store.base import ObjectStore
from bucketq.store.queue_search import FoundQueue, QueueFolder
from bucketq.store.url import Location, open_store

_log = logging.getLogger("bucketq.broker")

SCAN_S = 10.0
"""How long a new queue may wait for its broker. A listing of a folder costs one request or a few,
about four cents a day at list prices."""
_UNFIT = re.compile(r"[^a-z0-9._-]+")
_NAME_LENGTH = 64
_DIGEST_LENGTH = 8


class _Served(NamedTuple):
    names: list[str]
    """The queue, and its further partitions if it has any."""
    queue: FoundQueue
    store: ObjectStore


class FolderWatch:
    """Keeps the queues of a server those of a folder."""

    def __init__(
        self,
        folder: QueueFolder,
        server: Server,
        make: Callable[[Location], Awaitable[list[Broker]]],
        clock: Clock,
    ) -> None:
        """Watch a folder; ``make`` makes the broker of a queue, or raises a ``BucketQError``.

        Of a queue with partitions it makes one for each.
        """
        self._folder = folder
        self._server = server
        self._make = make
        self._unlisted = TransientFault(clock, _log, f"{folder.url}: cannot be listed")
        self._served: dict[str, _Served] = {}
        """By their paths."""
        self._refused: dict[str, FoundQueue] = {}
        """Queues that cannot be served as they are."""

    async def scan(self) -> None:
        """Serve the queues that are new, and give up those that are gone or have failed.

        Raises ``UnavailableError`` or ``StoreRefusedError`` if the folder cannot be listed.
        """
        found = {each.path: each for each in await self._folder.find()}
        for path, served in list(self._served.items()):
            brokers = [self._server.brokers[name] for name in served.names]
            if path not in found or any(broker.failure is not None for broker in brokers):
                del self._served[path]
                if path in found:
                    self._refused[path] = served.queue
                for name in served.names:
                    await self._server.remove(name)
                await served.store.close()
        for path, queue in found.items():
            known = self._refused.get(path)
            if path not in self._served and (known is None or known.stamp != queue.stamp):
                await self._serve(queue)

    async def run(self) -> None:
        """Scan for ever."""
        while True:
            await asyncio.sleep(SCAN_S)
            try:
                await self.scan()
                self._unlisted.passed()
            except (UnavailableError, StoreRefusedError) as error:
                await self._unlisted.wait(error)

    async def close(self) -> None:
        """Close the stores; the server must have stopped."""
        for served in self._served.values():
            await served.store.close()
        await self._folder.close()

    async def _serve(self, queue: FoundQueue) -> None:
        name, location = _name(queue.name), open_store(queue.url)
        names: list[str] = []
        try:
            for index, broker in enumerate(await self._make(location)):
                names.append(f"{name}/{index}" if index else name)
                self._server.add(names[-1], broker)
        except BucketQError as error:
            self._refused[queue.path] = queue
            _log.error("%s; the other queues are still served", error)
            await location.store.close()
        else:
            self._served[queue.path] = _Served(names, queue, location.store)
            self._refused.pop(queue.path, None)


def _name(path: str) -> str:
    """Return the name of a queue: ``mail/eu`` is called ``mail.eu``.

    A path that this would not tell from others gets a digest, so that all brokers use one name.
    """
    wanted = path.replace("/", ".")
    name = _UNFIT.sub("-", wanted.lower()).strip("-._")[:_NAME_LENGTH] or "queue"
    if name == wanted and "." not in path:
        return name
    digest = blake2b(path.encode(), digest_size=_DIGEST_LENGTH // 2).hexdigest()
    return f"{name[: _NAME_LENGTH - _DIGEST_LENGTH - 1]}-{digest}"
