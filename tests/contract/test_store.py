"""What every store promises, once for all of them.

A new store is one more entry in ``STORES``: a context manager that is given an empty directory
and yields an open store with nothing in it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.store.base import (
    FolderStore,
    ObjectMissingError,
    ObjectStore,
    ObjectTooShortError,
    PreconditionFailedError,
    StoredObject,
)
from bucketq.store.local import LocalStore
from bucketq.store.memory import MemoryStore

KEY = "queue.json"
AN_OLD_ETAG = "0-0-0"

OpenStore = Callable[[Path], AbstractAsyncContextManager[ObjectStore]]


@contextlib.asynccontextmanager
async def memory_store(_: Path) -> AsyncIterator[ObjectStore]:
    yield MemoryStore()


@contextlib.asynccontextmanager
async def local_store(folder: Path) -> AsyncIterator[ObjectStore]:
    store = LocalStore(folder)
    yield store
    await store.close()


STORES: dict[str, OpenStore] = {"memory": memory_store, "local": local_store}


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    open_store: OpenStore = request.param
    async with open_store(tmp_path) as opened:
        yield opened


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix)]


async def test_what_is_created_can_be_read_back_under_its_etag(store: ObjectStore) -> None:
    etag = await store.create(KEY, b"one")
    assert await store.get(KEY) == StoredObject(b"one", etag)


async def test_an_object_that_is_not_there_cannot_be_read(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissingError):
        await store.get(KEY)
    with pytest.raises(ObjectMissingError):
        await store.get("archive/of/nothing.json")
    with pytest.raises(ObjectMissingError):
        await store.get_if_changed(KEY, AN_OLD_ETAG)
    with pytest.raises(ObjectMissingError):
        await store.get_range(KEY, 0, 1)
    with pytest.raises(ObjectMissingError):
        await store.get_range("archive/of/nothing.json", 5, 10)


async def test_creating_an_object_that_exists_is_refused_and_changes_nothing(
    store: ObjectStore,
) -> None:
    etag = await store.create(KEY, b"one")
    with pytest.raises(PreconditionFailedError):
        await store.create(KEY, b"two")
    assert await store.get(KEY) == StoredObject(b"one", etag)


async def test_replacing_with_the_current_etag_gives_a_new_one(store: ObjectStore) -> None:
    first = await store.create(KEY, b"one")
    second = await store.replace(KEY, b"two", first)
    assert second != first
    assert await store.get(KEY) == StoredObject(b"two", second)


async def test_replacing_with_a_stale_etag_is_refused_and_changes_nothing(
    store: ObjectStore,
) -> None:
    first = await store.create(KEY, b"one")
    second = await store.replace(KEY, b"two", first)
    for stale in (first, AN_OLD_ETAG, ""):
        with pytest.raises(PreconditionFailedError):
            await store.replace(KEY, b"three", stale)
    assert await store.get(KEY) == StoredObject(b"two", second)


async def test_replacing_an_object_that_is_not_there_creates_nothing(store: ObjectStore) -> None:
    for key in (KEY, "archive/of/nothing.json"):
        with pytest.raises(ObjectMissingError):
            await store.replace(key, b"one", AN_OLD_ETAG)
    assert await keys(store) == []


async def test_replacing_bytes_by_the_same_bytes_still_gives_a_new_etag(
    store: ObjectStore,
) -> None:
    first = await store.create(KEY, b"same")
    second = await store.replace(KEY, b"same", first)
    assert second != first
    with pytest.raises(PreconditionFailedError):
        await store.replace(KEY, b"other", first)


async def test_a_read_for_changes_returns_the_object_only_if_it_has_another_etag(
    store: ObjectStore,
) -> None:
    first = await store.create(KEY, b"one")
    assert await store.get_if_changed(KEY, first) is None
    second = await store.replace(KEY, b"two", first)
    assert await store.get_if_changed(KEY, first) == StoredObject(b"two", second)
    assert await store.get_if_changed(KEY, second) is None


@pytest.mark.parametrize("size_bytes", [1, 1000, 5_000_000])
async def test_any_range_of_an_object_can_be_read(store: ObjectStore, size_bytes: int) -> None:
    body = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    await store.create("a folder/segment", body)
    middle = size_bytes // 2
    for start, stop in (
        (0, size_bytes),
        (0, 1),
        (size_bytes - 1, size_bytes),
        (middle, middle + 1),
        (middle, size_bytes),
        (size_bytes // 3, middle + 1),
    ):
        assert await store.get_range("a folder/segment", start, stop - start) == body[start:stop]


@pytest.mark.parametrize("size_bytes", [1, 1000])
async def test_a_range_that_is_not_wholly_in_the_object_is_not_returned_in_part(
    store: ObjectStore, size_bytes: int
) -> None:
    await store.create(KEY, b"x" * size_bytes)
    for offset, length in (
        (0, size_bytes + 1),
        (size_bytes - 1, 2),
        (size_bytes, 1),
        (size_bytes + 1, 1),
        (10 * size_bytes + 10, 1000),
    ):
        with pytest.raises(ObjectTooShortError, match=f"ends before byte {offset + length}"):
            await store.get_range(KEY, offset, length)


async def test_an_empty_object_has_no_range(store: ObjectStore) -> None:
    await store.create(KEY, b"")
    for offset, length in ((0, 1), (0, 1000), (1, 1)):
        with pytest.raises(ObjectTooShortError):
            await store.get_range(KEY, offset, length)


async def test_what_is_not_a_range_is_refused(store: ObjectStore) -> None:
    await store.create(KEY, b"one")
    for offset, length in ((-1, 1), (0, 0), (1, -1), (-2, 2)):
        with pytest.raises(InvalidRequestError, match="not a range"):
            await store.get_range(KEY, offset, length)


async def test_a_range_is_one_of_the_current_version(store: ObjectStore) -> None:
    etag = await store.create(KEY, b"one two")
    assert await store.get_range(KEY, 4, 3) == b"two"
    await store.replace(KEY, b"one six", etag)
    assert await store.get_range(KEY, 4, 3) == b"six"
    await store.delete(KEY)
    with pytest.raises(ObjectMissingError):
        await store.get_range(KEY, 4, 3)


async def test_put_writes_whatever_is_there(store: ObjectStore) -> None:
    first = await store.put("archive/2026/segment.json", b"one")
    second = await store.put("archive/2026/segment.json", b"two")
    assert first != second
    assert await store.get("archive/2026/segment.json") == StoredObject(b"two", second)
    with pytest.raises(PreconditionFailedError):
        await store.replace("archive/2026/segment.json", b"three", first)


async def test_a_deleted_object_is_gone_and_can_be_created_again(store: ObjectStore) -> None:
    await store.create(KEY, b"one")
    await store.delete(KEY)
    with pytest.raises(ObjectMissingError):
        await store.get(KEY)
    assert await keys(store) == []
    await store.create(KEY, b"two")
    assert (await store.get(KEY)).body == b"two"


async def test_deleting_a_missing_object_is_not_an_error(store: ObjectStore) -> None:
    await store.delete(KEY)
    await store.delete("archive/of/nothing.json")
    assert await keys(store) == []


async def test_etags_do_not_repeat_over_rapid_writes_of_one_size(store: ObjectStore) -> None:
    etags = [await store.create(KEY, b"%04d" % 0)]
    for number in range(1, 500):
        etags.append(await store.replace(KEY, b"%04d" % number, etags[-1]))
    assert len(set(etags)) == len(etags)


async def test_etags_do_not_repeat_when_an_object_is_deleted_and_made_again(
    store: ObjectStore,
) -> None:
    etags = []
    for number in range(100):
        etags.append(await store.create(KEY, b"%04d" % number))
        await store.delete(KEY)
    assert len(set(etags)) == len(etags)


async def test_a_stale_etag_is_refused_after_a_delete_and_a_create(store: ObjectStore) -> None:
    etag = await store.create(KEY, b"one")
    await store.delete(KEY)
    await store.create(KEY, b"two")
    with pytest.raises(PreconditionFailedError):
        await store.replace(KEY, b"six", etag)
    assert (await store.get(KEY)).body == b"two"


async def test_of_many_that_create_at_once_one_wins(store: ObjectStore) -> None:
    for number in range(5):
        key = f"race-{number}.json"
        outcomes = await asyncio.gather(
            *(store.create(key, b"%d" % writer) for writer in range(16)), return_exceptions=True
        )
        winners = [writer for writer in range(16) if isinstance(outcomes[writer], str)]
        losers = [error for error in outcomes if isinstance(error, PreconditionFailedError)]
        assert (len(winners), len(losers)) == (1, 15)
        assert await store.get(key) == StoredObject(b"%d" % winners[0], str(outcomes[winners[0]]))


async def test_many_writers_that_compare_and_set_lose_no_update(store: ObjectStore) -> None:
    async def increment(times: int) -> None:
        while times:
            stored = await store.get(KEY)
            await asyncio.sleep(0)
            with contextlib.suppress(PreconditionFailedError):
                await store.replace(KEY, b"%d" % (int(stored.body) + 1), stored.etag)
                times -= 1

    await store.create(KEY, b"0")
    await asyncio.gather(*(increment(5) for _ in range(16)))
    assert (await store.get(KEY)).body == b"80"


async def test_readers_beside_a_writer_see_whole_versions_in_order(store: ObjectStore) -> None:
    async def read_on(etag: str) -> list[int]:
        seen = [0]
        while seen[-1] < 20:
            changed = await store.get_if_changed(KEY, etag)
            if changed is None:
                await asyncio.sleep(0)
                continue
            etag = changed.etag
            number = changed.body[0]
            assert changed.body == bytes([number]) * (1000 * number + 1)
            seen.append(number)
        return seen

    async def write_on(etag: str) -> None:
        for number in range(1, 21):
            etag = await store.replace(KEY, bytes([number]) * (1000 * number + 1), etag)

    etag = await store.create(KEY, b"\0")
    *seen, _ = await asyncio.gather(*(read_on(etag) for _ in range(3)), write_on(etag))
    for numbers in seen:
        assert numbers == sorted(numbers or [])


@pytest.mark.parametrize("size_bytes", [0, 1, 5_000_000])
async def test_a_body_of_any_size_comes_back_as_it_was(store: ObjectStore, size_bytes: int) -> None:
    body = bytes(range(256)) * (size_bytes // 256 + 1)
    body = body[:size_bytes]
    etag = await store.create(KEY, body)
    assert (await store.get(KEY)).body == body
    etag = await store.replace(KEY, body[: size_bytes // 2], etag)
    assert await store.get(KEY) == StoredObject(body[: size_bytes // 2], etag)
    assert [info.size_bytes async for info in store.list("")] == [size_bytes // 2]


@pytest.mark.parametrize(
    "key", ["Größe.json", "キュー/部分.json", "with space+plus%25.json", "a=1/b=2/c.d,e", ".hidden"]
)
async def test_keys_may_hold_any_text(store: ObjectStore, key: str) -> None:
    etag = await store.put(key, b"one")
    assert await store.get(key) == StoredObject(b"one", etag)
    assert await keys(store) == [key]
    await store.delete(key)
    assert await keys(store) == []


async def test_a_listing_is_in_order_of_keys_whatever_the_folders(store: ObjectStore) -> None:
    written = ["a/b", "a-b", "a.b", "a0", "a/b-c/d", "a/b0", "B", "b/1/2/3", "é", "b/1/2-", "Z/z"]
    for key in written:
        await store.put(key, b"")
    assert await keys(store) == sorted(written, key=str.encode)


async def test_a_listing_holds_the_keys_that_begin_with_the_prefix(store: ObjectStore) -> None:
    for key in ("archive/01/a", "archive/01/b", "archive/02/a", "archived", "queue.json"):
        await store.put(key, b"")
    assert await keys(store, "archive/") == ["archive/01/a", "archive/01/b", "archive/02/a"]
    assert await keys(store, "archive/0") == ["archive/01/a", "archive/01/b", "archive/02/a"]
    assert await keys(store, "archive/01/b") == ["archive/01/b"]
    assert await keys(store, "archive/02/") == ["archive/02/a"]
    assert await keys(store, "archive") == [
        "archive/01/a",
        "archive/01/b",
        "archive/02/a",
        "archived",
    ]
    assert await keys(store, "nothing/here/") == []
    assert await keys(store, "queue.json.") == []


async def test_a_folder_is_listed_without_what_is_in_its_folders(store: ObjectStore) -> None:
    for key in ("jobs/a.json", "jobs/a/segments/1", "jobs/b/c/d.json", "jobs.json", "é/ö %.json"):
        await store.put(key, b"four")
    folders = cast("FolderStore", store)
    found = await folders.list_folder("jobs/")
    assert [(info.key, info.size_bytes) for info in found.objects] == [("jobs/a.json", 4)]
    assert sorted(found.folders) == ["jobs/a/", "jobs/b/"]
    top = await folders.list_folder("")
    assert [info.key for info in top.objects] == ["jobs.json"]
    assert sorted(top.folders) == ["jobs/", "é/"]
    assert [info.key for info in (await folders.list_folder("é/")).objects] == ["é/ö %.json"]
    assert await folders.list_folder("nothing/here/") == ([], [])


async def test_a_listing_has_size_and_time(store: ObjectStore) -> None:
    before = datetime.now(UTC)
    await store.put("segment", b"four")
    (info,) = [info async for info in store.list("")]
    assert (info.key, info.size_bytes) == ("segment", 4)
    assert info.modified_at.utcoffset() == timedelta(0)
    assert abs(info.modified_at - before) < timedelta(minutes=5)


async def test_a_listing_may_be_abandoned(store: ObjectStore) -> None:
    for key in ("a/1", "b/1", "c/1"):
        await store.put(key, b"")
    async with contextlib.aclosing(store.list("")) as listing:  # type: ignore[type-var]
        async for info in listing:
            assert info.key == "a/1"
            break
    assert await keys(store) == ["a/1", "b/1", "c/1"]


async def test_the_store_reports_its_address_and_its_write_pace(
    store: ObjectStore,
) -> None:
    assert "://" in store.url
    assert store.write_interval_s >= 0.0


async def test_closing_twice_is_not_an_error(store: ObjectStore) -> None:
    await store.close()
    await store.close()
