"""What the file store returns is on the disk, and what happens if that cannot be said."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bucketq.errors import NotDurableError, StoreRefusedError
from bucketq.store import directories
from bucketq.store.base import PreconditionFailedError
from bucketq.store.local import LocalStore
from tests.unit.store.disk import Disk

KEY = "queue.json"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> int:
    """The inode of the root of the store."""
    return tmp_path.stat().st_ino


async def leave_unsynced(store: LocalStore, body: bytes) -> None:
    """Write as a process does that is killed between the rename and the sync."""
    etag = (await store.get(KEY)).etag
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directories, "sync", lambda _: None)
        await store.replace(KEY, body, etag)


async def test_every_write_is_synced_before_it_is_answered(store: LocalStore, disk: Disk) -> None:
    etag = await store.create(KEY, b"one")
    assert disk.may_lose == []
    await store.replace(KEY, b"two", etag)
    assert disk.may_lose == []
    await store.put("archive/1", b"")
    assert disk.may_lose == []
    await store.delete(KEY)
    assert disk.may_lose == []


@pytest.mark.parametrize("verb", ["get", "get_if_changed", "get_range"])
async def test_what_a_dead_writer_left_unsynced_is_synced_when_it_is_read(
    store: LocalStore, other: LocalStore, disk: Disk, verb: str
) -> None:
    etag = await store.create(KEY, b"one")
    await leave_unsynced(other, b"two")
    assert disk.may_lose == [KEY]
    if verb == "get_range":
        assert await store.get_range(KEY, 1, 2) == b"wo"
    else:
        found = await (store.get(KEY) if verb == "get" else store.get_if_changed(KEY, etag))
        assert found is not None
        assert found.body == b"two"
    assert disk.may_lose == []


async def test_a_version_that_is_only_recognized_is_synced_as_well(
    store: LocalStore, other: LocalStore, disk: Disk
) -> None:
    await store.create(KEY, b"one")
    await leave_unsynced(other, b"two")
    etag = (await other.get(KEY)).etag
    assert disk.may_lose == [KEY], "a store trusts what it has written by itself"
    assert await store.get_if_changed(KEY, etag) is None
    assert disk.may_lose == []


async def test_the_data_of_a_file_is_synced_before_its_name(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was copied into place by hand may be in memory only."""
    (tmp_path / KEY).write_bytes(b"a copy")
    steps: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda _: steps.append("directory"))
    monkeypatch.setattr(os, "fdatasync", lambda _: steps.append("file"))
    await store.get(KEY)
    assert steps == ["file", "directory"]


async def test_a_version_is_synced_by_each_process_once(
    store: LocalStore, other: LocalStore, disk: Disk, folder: int
) -> None:
    etag = await store.create(KEY, b"one")
    disk.synced.clear()
    await store.get(KEY)
    await store.get_range(KEY, 0, 1)
    assert await store.get_if_changed(KEY, etag) is None
    assert disk.synced == []
    await other.get_range(KEY, 0, 1)
    await other.get_range(KEY, 1, 1)
    await other.get(KEY)
    await other.get(KEY)
    assert await other.get_if_changed(KEY, etag) is None
    assert disk.synced == [folder]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EINVAL])
async def test_after_a_failed_sync_the_store_stops(
    store: LocalStore, tmp_path: Path, disk: Disk, code: int
) -> None:
    etag = await store.create(KEY, b"one")
    disk.failures_left, disk.code = 1, code
    path = tmp_path / KEY
    reason = os.strerror(code).lower()
    with pytest.raises(NotDurableError, match=f"cannot sync {path}: {reason}; .* check the disk"):
        await store.replace(KEY, b"two", etag)
    for attempt in (
        store.get(KEY),
        store.get_if_changed(KEY, etag),
        store.get_range(KEY, 0, 1),
        store.replace(KEY, b"three", etag),
        store.create("other", b""),
        store.put("other", b""),
        store.delete(KEY),
    ):
        with pytest.raises(NotDurableError, match=f"cannot sync {path}: {reason}"):
            await attempt
    with pytest.raises(NotDurableError):
        _ = [info async for info in store.list("")]
    assert path.read_bytes() == b"two"


async def test_a_read_that_cannot_be_synced_is_not_answered(
    store: LocalStore, other: LocalStore, disk: Disk
) -> None:
    await store.create(KEY, b"one")
    disk.failures_left = 1
    with pytest.raises(NotDurableError):
        await other.get(KEY)
    assert (await store.get(KEY)).body == b"one"


async def test_a_sync_that_fails_after_its_caller_has_gone_stops_the_store(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = await store.create(KEY, b"one")
    has_begun, may_fail = threading.Event(), threading.Event()

    def failing(_: int) -> None:
        has_begun.set()
        may_fail.wait(10)
        raise directories.UnsyncedError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(directories, "sync", failing)
        writing = asyncio.create_task(store.replace(KEY, b"two", etag))
        assert await asyncio.to_thread(has_begun.wait, 10)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    may_fail.set()
    with pytest.raises(NotDurableError):
        await until_refused(store)


async def test_a_read_is_not_answered_if_a_sync_beside_it_has_failed(
    store: LocalStore, other: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports an error to one of them, and the other succeeds for no good reason."""
    await store.create(KEY, b"one")
    await other.put(KEY, b"two")
    has_begun, may_end = threading.Event(), threading.Event()

    def slow(_: int) -> None:
        has_begun.set()
        may_end.wait(10)

    with monkeypatch.context() as patch:
        patch.setattr(directories, "sync", slow)
        reading = asyncio.create_task(store.get(KEY))
        assert await asyncio.to_thread(has_begun.wait, 10)
    disk = Disk(monkeypatch)
    disk.failures_left = 1
    with pytest.raises(NotDurableError):
        await store.put("other", b"")
    may_end.set()
    with pytest.raises(NotDurableError):
        await reading


async def until_refused(store: LocalStore) -> None:
    while True:
        await store.get(KEY)


async def test_to_delete_what_another_process_has_deleted_syncs_that(
    store: LocalStore, tmp_path: Path, disk: Disk, folder: int
) -> None:
    await store.create(KEY, b"one")
    (tmp_path / KEY).unlink()
    disk.synced.clear()
    await store.delete(KEY)
    assert disk.synced == [folder]


async def test_directories_that_another_process_has_just_made_are_synced_too(
    tmp_path: Path, disk: Disk
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    inodes = [path.stat().st_ino for path in (tmp_path / "a", tmp_path)]
    store = LocalStore(tmp_path / "a" / "b")
    etag = await store.create(KEY, b"one")
    assert [inode for inode in disk.synced if inode in inodes] == inodes
    disk.synced.clear()
    await store.replace(KEY, b"two", etag)
    await store.put("other", b"")
    assert not set(inodes) & set(disk.synced), "they were known to be durable, and synced again"
    await store.close()


async def test_directories_that_a_write_makes_are_synced_before_it_has_its_name(
    tmp_path: Path, disk: Disk
) -> None:
    store = LocalStore(tmp_path / "new")
    disk.failures_left = 1
    with pytest.raises(NotDurableError):
        await store.put("archive/2026/1", b"")
    assert not (tmp_path / "new" / "archive" / "2026" / "1").exists()
    await store.close()


async def test_a_write_that_is_refused_does_not_stop_the_store(
    store: LocalStore, disk: Disk
) -> None:
    etag = await store.create(KEY, b"one")
    with pytest.raises(PreconditionFailedError):
        await store.replace(KEY, b"two", "0-0-0")
    await store.replace(KEY, b"two", etag)
    assert disk.may_lose == []


class ClosedDirectory:
    """A directory that this user may pass through but not open, as far as the store can see."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[int] = []
        self.failure: Exception | None = None
        monkeypatch.setattr(directories, "opened", self.opened)
        monkeypatch.setattr(directories, "sync_filesystem", self.sync_filesystem)

    def opened(self, path: Path, **_: object) -> AbstractContextManager[int | None]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def sync_filesystem(self, file: int) -> None:
        self.synced.append(os.fstat(file).st_ino)
        if self.failure is not None:
            raise self.failure


async def test_a_reader_that_may_not_open_the_directory_syncs_the_filesystem(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / KEY).write_bytes(b"one")
    closed = ClosedDirectory(monkeypatch)
    found = await store.get(KEY)
    assert found.body == b"one"
    assert await store.get_if_changed(KEY, found.etag) is None
    assert closed.synced == [(tmp_path / KEY).stat().st_ino], "each version is synced once"


async def test_a_filesystem_that_fails_to_sync_stops_such_a_reader_too(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / KEY).write_bytes(b"one")
    closed = ClosedDirectory(monkeypatch)
    closed.failure = directories.UnsyncedError(errno.EIO, "Input/output error")
    for _ in range(2):
        with pytest.raises(NotDurableError, match="input/output error"):
            await store.get(KEY)


async def test_without_a_way_to_sync_the_name_the_read_is_refused(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / KEY).write_bytes(b"one")
    ClosedDirectory(monkeypatch).failure = NotImplementedError()
    with pytest.raises(StoreRefusedError, match="permission to read the file and its directory"):
        await store.get(KEY)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has syncfs")
def test_a_filesystem_can_be_synced_and_a_failure_is_noticed(tmp_path: Path) -> None:
    with (tmp_path / KEY).open("wb") as file:
        directories.sync_filesystem(file.fileno())
        closed = os.dup(file.fileno())
    os.close(closed)
    with pytest.raises(directories.UnsyncedError, match="Bad file descriptor"):
        directories.sync_filesystem(closed)
