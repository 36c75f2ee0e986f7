"""Deep queues in virtual time, for tests of what administrators do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from bucketq import admin
from bucketq.codec.decode import decode
from bucketq.commit.direct_committer import DirectCommitter
from bucketq.commit.group_committer import GroupCommitter
from bucketq.commit.objects.queue_history import DEFAULT_HISTORY_POLICY
from bucketq.commit.objects.register import Register
from bucketq.commit.objects.segment_policy import DEFAULT_POLICY, SegmentPolicy
from bucketq.model.state import State
from bucketq.queue.push_options import JobSpec
from bucketq.queue.queue import Queue
from bucketq.testing import SimulatedClock, SimulatedStore, StoreLink, VirtualLoop, run

KEY = "queue.json"
OTHER = "other.json"
SPILL_BYTES = 2000


class Deep:
    """A store, queues over it that spill early, and their administration."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.store = SimulatedStore(loop)
        self.clock = SimulatedClock(loop)
        self.reader = self.store.connect("reader")
        self.policy = DEFAULT_POLICY
        self.history_policy = DEFAULT_HISTORY_POLICY

    def object(self, key: str = KEY, link: StoreLink | None = None) -> admin.QueueObject:
        link = link or self.store.connect("admin")
        return admin.QueueObject(link, key, f"sim://{key}", self.clock)

    def open(self, queue_type: type[Any] = GroupCommitter, key: str = KEY) -> Queue[Any]:
        register = Register(self.store.connect("queue"), key, key, self.clock)
        register.segments.policy, register.history.policy = self.policy, self.history_policy
        return Queue(queue_type(register, self.clock), self.clock)

    async def fill(self, count: int = 100, key: str = KEY, **settings: Any) -> list[str]:
        """Push jobs of two kinds, of which most go to segments; the first two are running."""
        async with self.open(DirectCommitter, key) as queue:
            await queue.configure(spill_bytes=SPILL_BYTES, **settings)
        async with self.open(key=key) as queue:
            ids: list[str] = []
            for start in range(0, count, 20):
                ids += await queue.push_many(
                    JobSpec(
                        kind="ab"[number % 2],
                        payload=number,
                        key=f"key-{number}",
                        delay_s=900 if number % 10 == 9 else None,
                        priority=number % 3,
                    )
                    for number in range(start, min(start + 20, count))
                )
                await asyncio.sleep(2)
            await queue.claim("a", limit=2)
            await asyncio.sleep(2)
        return ids

    async def fill_with_vectors(self) -> list[str]:
        """Let rows leave in any order, so that vectors say which; return the ids that are left."""
        self.policy = SegmentPolicy(most_ranges=5, least_versions=2, neighbours=8)
        ids = await self.fill(200)
        async with self.open() as queue:
            for job in ids[10::3]:
                await queue.cancel(job)
            await asyncio.sleep(20)
        rows = (await self.head()).cold.rows
        assert any(each.record.vector for each in rows.segments.values())
        return [job for job in ids if job not in ids[10::3]]

    async def body(self, key: str = KEY) -> bytes:
        return (await self.reader.get(key)).body

    async def head(self, key: str = KEY) -> State:
        return decode(await self.body(key), key).state

    async def keys(self, prefix: str = "") -> list[str]:
        return [info.key async for info in self.reader.list(prefix)]

    async def segments(self) -> list[str]:
        """The keys of everything below the folder of segments."""
        return await self.keys("queue/segments/")

    async def contents(self, key: str = KEY) -> list[tuple[Any, ...]]:
        """What a user sees of every job, in order."""
        async with self.open(DirectCommitter, key) as queue:
            page = await queue.jobs(limit=1000)
        return [(job.id, job.kind, job.payload, job.priority, job.status) for job in page.jobs]


def deep(test: Callable[[Deep], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test in virtual time, with a store."""

    def call() -> None:
        run(lambda loop: test(Deep(loop)))

    call.__name__, call.__doc__ = test.__name__, test.__doc__
    return call
