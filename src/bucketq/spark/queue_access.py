"""How the driver and the executors open a queue, or the store that it is in."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bucketq.client.blocking import UnopenedBlockingQueue
from bucketq.client.connect import UnopenedQueue, connect
from bucketq.client.connect_arguments import BROKERS
from bucketq.rpc.credentials import Tls, make_credentials
from bucketq.store.url import Location, open_store


@dataclass(frozen=True)
class QueueAccess:
    """The address of a queue and what is needed to open it. It is pickled and sent to executors.

    No process of Spark ever starts a broker: it would end with its task.
    """

    url: str
    timeout_s: float = 60.0
    token: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    insecure: bool = False

    @property
    def is_broker(self) -> bool:
        """Whether the address is that of a broker, so that the store cannot be reached."""
        return self.url.startswith(BROKERS)

    def for_executors(self) -> QueueAccess:
        """Return it with the token of this process, whose environment executors do not have."""
        if self.token is not None or not self.is_broker:
            return self
        return replace(self, token=make_credentials(os.environ).token or None)

    def connection(self, *, create: bool = False) -> UnopenedQueue[Any]:
        """Return a connection to be used with ``async with``."""
        return connect(
            self.url,
            launch="never",
            create=create,
            timeout_s=self.timeout_s,
            token=self.token,
            tls=self.tls,
            insecure=self.insecure,
        )

    def open(self, *, create: bool = False) -> UnopenedBlockingQueue[Any]:
        """Return a blocking connection to be used with ``with``."""
        return UnopenedBlockingQueue(self.connection(create=create))


@asynccontextmanager
async def opened_store(url: str) -> AsyncIterator[Location]:
    """Open the store of a queue, and close it at the end."""
    location = open_store(url)
    try:
        yield location
    finally:
        if not location.is_lent:
            await location.store.close()
