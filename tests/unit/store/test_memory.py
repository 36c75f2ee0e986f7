"""What the memory store promises beyond the contract of all stores."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from bucketq.clock import SystemClock
from bucketq.store.base import PreconditionFailedError
from bucketq.store.memory import MemoryStore, forget_memory_store, shared_memory_store


class FixedClock:
    def __init__(self, now: datetime) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time

    def entropy(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)


async def test_stores_of_one_name_are_one_store() -> None:
    await shared_memory_store("test-shared").put("key", b"one")
    assert (await shared_memory_store("test-shared").get("key")).body == b"one"
    assert shared_memory_store("test-other") is not shared_memory_store("test-shared")


async def test_closing_a_shared_store_leaves_it_to_the_others() -> None:
    await shared_memory_store("test-closed").put("key", b"one")
    await shared_memory_store("test-closed").close()
    assert (await shared_memory_store("test-closed").get("key")).body == b"one"


async def test_the_time_of_an_object_is_that_of_the_clock_at_its_last_write() -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = MemoryStore(clock=clock)
    await store.put("key", b"one")
    clock.time += timedelta(hours=1)
    await store.put("key", b"two")
    assert [info.modified_at async for info in store.list("")] == [clock.time]


async def test_a_buffer_that_is_changed_after_the_write_does_not_change_the_object() -> None:
    store = MemoryStore()
    buffer = bytearray(b"one")
    await store.put("key", buffer)  # type: ignore[arg-type]
    buffer[:] = b"two"
    assert (await store.get("key")).body == b"one"


async def test_a_listing_shows_the_moment_at_which_it_began() -> None:
    store = MemoryStore()
    for key in ("a", "b", "c"):
        await store.put(key, b"")
    seen = []
    async for info in store.list(""):
        seen.append(info.key)
        await store.delete("b")
        await store.put("d", b"")
    assert seen == ["a", "b", "c"]


def test_writers_on_event_loops_of_several_threads_lose_no_update() -> None:
    store = MemoryStore()
    asyncio.run(store.create("counter", b"0"))

    async def increment(times: int) -> None:
        while times:
            stored = await store.get("counter")
            try:
                await store.replace("counter", b"%d" % (int(stored.body) + 1), stored.etag)
            except PreconditionFailedError:
                continue
            times -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: asyncio.run(increment(500)), range(8)))
    assert asyncio.run(store.get("counter")).body == b"4000"


def test_a_named_store_uses_the_first_clock_until_it_is_forgotten() -> None:
    clock = SystemClock()
    store = shared_memory_store("with-a-clock", clock)
    assert store.clock is clock
    assert shared_memory_store("with-a-clock", SystemClock()) is store
    forget_memory_store("with-a-clock")
    assert shared_memory_store("with-a-clock") is not store
    forget_memory_store("with-a-clock")
