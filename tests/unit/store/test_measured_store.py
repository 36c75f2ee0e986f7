"""``MeasuredStore``: reports each request, and changes none."""

from __future__ import annotations

import pytest

from bucketq.store.base import ObjectMissingError, ObjectStore, PreconditionFailedError
from bucketq.store.measured_store import MeasuredStore
from bucketq.store.memory import MemoryStore


async def test_each_request_is_passed_on_and_reported_with_its_error() -> None:
    seen: list[tuple[str, str]] = []

    def note(request: str, took_s: float, error: BaseException | None) -> None:
        assert took_s >= 0
        seen.append((request, type(error).__name__))

    store: ObjectStore = MeasuredStore(MemoryStore(), note)
    etag = await store.create("a", b"12")
    with pytest.raises(PreconditionFailedError):
        await store.create("a", b"2")
    etag = await store.replace("a", b"23", etag)
    assert await store.get_if_changed("a", etag) is None
    assert (await store.get("a")).body == b"23"
    assert await store.get_range("a", 1, 1) == b"3"
    await store.put("b", b"")
    assert [each.key async for each in store.list("")] == ["a", "b"]
    await store.delete("a")
    with pytest.raises(ObjectMissingError):
        await store.get("a")
    assert (store.url, store.write_interval_s) == ("memory://", 0.0)
    await store.close()
    assert seen == [
        ("create", "NoneType"),
        ("create", "PreconditionFailedError"),
        ("replace", "NoneType"),
        ("get_if_changed", "NoneType"),
        ("get", "NoneType"),
        ("get_range", "NoneType"),
        ("put", "NoneType"),
        ("list", "NoneType"),
        ("delete", "NoneType"),
        ("get", "ObjectMissingError"),
    ]
