"""Queues in a store that the caller brings, and credentials that the caller provides."""

from __future__ import annotations

from typing import Any

import pytest

import bucketq
from bucketq import InvalidRequestError
from bucketq.store.memory import MemoryStore


class Counted(MemoryStore):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__("own")
        self.writes: list[str] = []
        self.closed = 0

    async def replace(self, key: str, body: bytes, etag: str) -> str:
        self.writes.append(key)
        return await super().replace(key, body, etag)

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("mode", ["direct", "embedded"])
async def test_a_queue_can_live_in_a_store_of_the_callers_own(mode: Any) -> None:
    store = Counted()
    async with bucketq.connect("jobs/queue.json", store=store, mode=mode) as queue:
        await queue.push("mail", 1)
    async with bucketq.connect("jobs/queue.json", store=store, mode=mode) as queue:
        (job,) = await queue.claim()
        assert job.payload == 1
    assert set(store.writes) == {"jobs/queue.json"}
    assert store.closed == 0  # It is still the caller's.


def test_the_blocking_face_takes_a_store_too() -> None:
    store = Counted()
    with bucketq.connect_sync("queue.json", store=store) as queue:
        queue.push("mail", 1)
    assert store.writes == ["queue.json"]


async def test_messages_name_the_store_and_the_key() -> None:
    with pytest.raises(bucketq.QueueNotFoundError, match=r"no queue at memory://own/queue\.json"):
        async with bucketq.connect("queue.json", store=Counted(), create=False):
            pass


def test_a_store_that_lacks_a_method_is_refused_at_once() -> None:
    class Client:
        get = get_range = MemoryStore.get_range

    class Older:
        get_if_changed = MemoryStore.get_if_changed

    for store, reason in ((Client(), "has others"), (Older(), "lacks `get_range`")):
        with pytest.raises(InvalidRequestError, match=reason):
            bucketq.connect("queue.json", store=store)  # type: ignore[call-overload]


@pytest.mark.parametrize("key", ["", "s3://bucket/queue.json", "/queue.json", "jobs/", "a\nb", 7])
def test_with_a_store_the_first_argument_is_a_key(key: Any) -> None:
    with pytest.raises(InvalidRequestError, match="the key of the queue in it"):
        bucketq.connect(key, store=MemoryStore())


def test_a_client_of_a_cloud_is_not_a_store() -> None:
    with pytest.raises(InvalidRequestError, match="use its address"):
        bucketq.connect("queue.json", store=object())  # type: ignore[call-overload]


def test_credentials_are_for_cloud_addresses() -> None:
    for url in ("memory://jobs", "file:///srv/queue.json"):
        with pytest.raises(InvalidRequestError, match="leave out `credential_provider`"):
            bucketq.connect(url, credential_provider=dict)
    with pytest.raises(InvalidRequestError, match="leave out `credential_provider`"):
        bucketq.connect("queue.json", store=MemoryStore(), credential_provider=dict)
