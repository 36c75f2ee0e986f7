"""A leader over a store that fails as a test tells it to, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from bucketq.broker.leader import Leader
from bucketq.broker.takeover import Identity
from bucketq.commit.objects.register import Register
from bucketq.queue.queue import Queue
from tests.unit.commit.worlds import KEY, World

ADA = Identity("ada", "host1:4001", "host1")
BOB = Identity("bob", "host2:4001", "host2")


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def until(is_so: Callable[[], Awaitable[bool]], limit_s: float = 120.0) -> float:
    """Look four times a second until something is so; returns how long that took."""
    began = now_s()
    while not await is_so():
        assert now_s() - began < limit_s
        await asyncio.sleep(0.25)
    return now_s() - began


class Led(Queue[Any]):
    """A queue over a leader, with what the leader shows."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)


class Realm(World):
    """A store, and the leaders of the queue in it."""

    @asynccontextmanager
    async def leader(
        self, identity: Identity = ADA, after: int = 0, timeout_s: float = 20.0
    ) -> AsyncIterator[Led]:
        """A leader, open."""
        await self.register().open(create=True)
        async with self._led(self.register(), identity, after, timeout_s) as led:
            yield led

    @asynccontextmanager
    async def usurper(self, after: int) -> AsyncIterator[Led]:
        """Another leader, with whose storage nothing is wrong."""
        register = Register(self.store.memory, KEY, "test://queue", self.clock)
        async with self._led(register, BOB, after, 20.0) as led:
            yield led

    def _led(self, register: Register, identity: Identity, after: int, timeout_s: float) -> Led:
        leader = Leader(
            register, self.clock, identity=identity, after=after, archive=None, timeout_s=timeout_s
        )
        return Led(leader, self.clock, timeout_s=timeout_s)

    def writes(self) -> int:
        return self.store.count("replace")

    def reads(self) -> int:
        return self.store.count("get_if_changed") + self.store.count("get")

    async def status(self) -> str:
        """The status of the only job, in the storage."""
        (job,) = (await self.state()).jobs
        return job.status

    async def is_reclaimed(self) -> bool:
        return await self.status() == "queued"
