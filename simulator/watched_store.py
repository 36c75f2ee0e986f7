"""A simulated store that remembers which heads were sent, also if they never arrived."""

from __future__ import annotations

from typing import Any, NamedTuple

from bucketq.testing.simulated_store import SimulatedStore
from bucketq.testing.store_link import StoreLink


class SentHead(NamedTuple):
    """A head on its way to the store."""

    commits: int
    """How many writes had taken effect in the store when it was sent."""
    body: bytes
    writer: str


class WatchedStore(SimulatedStore):
    """A store that remembers which heads were sent, also if they never arrived."""

    watched = ""
    """The key of the queue object."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Make an empty store; the arguments are those of ``SimulatedStore``."""
        super().__init__(*args, **options)
        self.sent: list[SentHead] = []

    def connect(
        self,
        name: str = "store",
        *,
        latency_s: tuple[float, float] | None = None,
        timeout_s: float | None = None,
    ) -> StoreLink:
        """Open a link that reports the heads that it sends."""
        link = WatchedLink(self, name, latency_s or self.latency_s, timeout_s or self.timeout_s)
        self._links.append(link)
        return link


class WatchedLink(StoreLink):
    """A link that reports the heads that it sends."""

    store: WatchedStore

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        """Write an object that must still have ``etag``."""
        store = self.store
        if key == store.watched:
            writer = store.loop.current_process().name
            store.sent.append(SentHead(len(store.commits), bytes(body), writer))
        return await super().replace(key, body, etag)
