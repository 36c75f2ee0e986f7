"""What the file store promises beyond the contract of all stores: keys, listings and refusals."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bucketq.errors import (
    ClosedError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from bucketq.store.base import ObjectMissingError, PreconditionFailedError
from bucketq.store.local import LocalStore
from tests.unit.store.spares import visible_names

KEY = "queue.json"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "bucketq-test", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this user may not mount a small filesystem: {error}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def fail_fsync(
    monkeypatch: pytest.MonkeyPatch, code: int, is_target: Callable[[int], bool]
) -> None:
    """Let a sync fail for files (or directories) alone."""

    def failing(sync: Callable[[int], None]) -> Callable[[int], None]:
        def failing_sync(descriptor: int) -> None:
            if is_target(os.fstat(descriptor).st_mode):
                raise OSError(code, os.strerror(code))
            sync(descriptor)

        return failing_sync

    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    monkeypatch.setattr(os, "fdatasync", failing(os.fdatasync))


async def test_an_object_is_a_plain_file_with_nothing_added(
    store: LocalStore, tmp_path: Path
) -> None:
    etag = await store.create(KEY, b'{"format":1}\n')
    assert (tmp_path / KEY).read_bytes() == b'{"format":1}\n'
    await store.replace(KEY, b'{"format":2}\n', etag)
    await store.put("archive/2026/01.json", b"{}")
    assert (tmp_path / "archive" / "2026" / "01.json").read_bytes() == b"{}"
    assert visible_names(tmp_path) == {KEY, "archive"}


@pytest.mark.parametrize(
    "key",
    [
        *("", ".", "..", "/", "/etc/passwd", "../up", "a/../b", "./a", "a//b", "a/"),
        *("a\0b", "a\\b", "\ud800", ".bucketq.lock", "a/.bucketq.0.tmp", ".bucketq.dir/a"),
    ],
)
async def test_a_key_that_could_leave_the_root_is_refused(
    store: LocalStore, tmp_path: Path, key: str
) -> None:
    attempts = [
        store.get(key),
        store.get_if_changed(key, ""),
        store.get_range(key, 0, 1),
        store.create(key, b""),
        store.replace(key, b"", ""),
        store.put(key, b""),
        store.delete(key),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidRequestError):
            await attempt
    assert visible_names(tmp_path) == set()


@pytest.mark.parametrize("prefix", ["/", "/etc/", "../", "a/../", "a//", "./", "a\\b/", "\0/"])
async def test_a_prefix_that_could_leave_the_root_is_refused(
    store: LocalStore, prefix: str
) -> None:
    with pytest.raises(InvalidRequestError):
        _ = [info async for info in store.list(prefix)]


async def test_a_listing_shows_neither_locks_nor_temporary_files_nor_links(
    store: LocalStore, tmp_path: Path
) -> None:
    await store.put("a/1", b"")
    (tmp_path / "a" / ".bucketq.7.tmp").write_bytes(b"left by a dead writer")
    (tmp_path / "a" / "link").symlink_to("1")
    (tmp_path / "a" / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    assert [info.key async for info in store.list("")] == ["a/1"]


async def test_the_archive_may_be_a_link_to_a_directory_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root" / "archive").symlink_to("../elsewhere")
    store = LocalStore(tmp_path / "root")
    await store.put("archive/1", b"one")
    assert (tmp_path / "elsewhere" / "1").read_bytes() == b"one"
    assert [info.key async for info in store.list("")] == ["archive/1"]
    await store.close()


async def test_listing_a_root_that_is_not_there_finds_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "nothing")
    assert [info async for info in store.list("")] == []
    await store.close()


async def test_a_directory_in_the_place_of_the_file_is_refused(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / KEY).mkdir()
    for attempt in (
        store.get(KEY),
        store.create(KEY, b""),
        store.replace(KEY, b"", "0-0-0"),
        store.put(KEY, b""),
        store.delete(KEY),
    ):
        with pytest.raises(StoreRefusedError, match=f"{KEY}: is a directory; name a file"):
            await attempt
    assert visible_names(tmp_path) == {KEY}


async def test_a_symbolic_link_in_the_place_of_the_file_is_refused(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "target").write_bytes(b"one")
    (tmp_path / KEY).symlink_to("target")
    for attempt in (store.get(KEY), store.create(KEY, b""), store.put(KEY, b""), store.delete(KEY)):
        with pytest.raises(StoreRefusedError, match="name its target"):
            await attempt
    assert (tmp_path / KEY).is_symlink()


async def test_a_pipe_in_the_place_of_the_file_is_refused_without_waiting(
    store: LocalStore, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / KEY)
    for attempt in (store.get(KEY), store.create(KEY, b"")):
        with pytest.raises(StoreRefusedError, match="not a regular file"):
            await attempt


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(tmp_path / "file" / "folder")
    for attempt in (
        store.get(KEY),
        store.create(KEY, b""),
        store.replace(KEY, b"", "0-0-0"),
        store.put(KEY, b""),
    ):
        with pytest.raises(StoreRefusedError, match="something above it in the path is a file"):
            await attempt
    await store.close()


async def test_a_name_that_is_too_long_is_refused(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(StoreRefusedError, match="use a shorter path"):
        await store.create("x" * 300, b"")
    await store.create("x" * 255, b"")
    assert visible_names(tmp_path) == {"x" * 255}


async def test_a_full_disk_refuses_the_write_and_keeps_the_old_version(small_disk: Path) -> None:
    store = LocalStore(small_disk)
    etag = await store.create(KEY, b"one")
    with pytest.raises(StoreRefusedError, match="no space left on device; free some space"):
        await store.replace(KEY, b"x" * 200_000, etag)
    assert (await store.get(KEY)).body == b"one"
    assert visible_names(small_disk) == {KEY}
    etag = await store.replace(KEY, b"two", etag)
    with pytest.raises(StoreRefusedError, match="no space left on device; free some space"):
        await store.replace(KEY, b"x" * 200_000, etag)  # Into a spare, this time.
    assert (await store.get(KEY)).body == b"two"
    await store.replace(KEY, b"six", etag)
    await store.close()


async def test_a_read_only_disk_refuses_writes_and_serves_reads(small_disk: Path) -> None:
    store = LocalStore(small_disk)
    etag = await store.create(KEY, b"one")
    make_read_only(small_disk)
    for attempt in (
        store.replace(KEY, b"two", etag),
        store.create("other", b""),
        store.put("archive/1", b""),
        store.delete(KEY),
    ):
        with pytest.raises(StoreRefusedError, match=f"{small_disk}.*read-only"):
            await attempt
    assert (await store.get(KEY)).body == b"one"
    await store.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG])
async def test_a_refusal_while_syncing_the_file_changes_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    etag = await store.create(KEY, b"one")
    with monkeypatch.context() as patch:
        fail_fsync(patch, code, stat.S_ISREG)
        with pytest.raises(StoreRefusedError, match=str(tmp_path / KEY)):
            await store.replace(KEY, b"two", etag)
    assert visible_names(tmp_path) == {KEY}
    await store.replace(KEY, b"two", etag)


async def test_an_io_error_while_syncing_the_file_leaves_the_outcome_unknown(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = await store.create(KEY, b"one")
    fail_fsync(monkeypatch, errno.EIO, stat.S_ISREG)
    with pytest.raises(UnavailableError, match="outcome is unknown"):
        await store.replace(KEY, b"two", etag)
    assert visible_names(tmp_path) == {KEY}


async def test_a_hand_edit_changes_the_etag(store: LocalStore, tmp_path: Path) -> None:
    etag = await store.create(KEY, b"one")
    (tmp_path / KEY).write_bytes(b"edited")
    with pytest.raises(PreconditionFailedError):
        await store.replace(KEY, b"two", etag)
    assert (await store.get(KEY)).body == b"edited"


async def test_a_directory_that_vanishes_is_missing_to_replace_and_made_by_create(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "folder")
    etag = await store.create(KEY, b"one")
    for path in (tmp_path / "folder").iterdir():
        path.unlink()
    (tmp_path / "folder").rmdir()
    with pytest.raises(ObjectMissingError):
        await store.replace(KEY, b"two", etag)
    await store.create(KEY, b"two")
    assert (await store.get(KEY)).body == b"two"
    await store.close()


async def test_descriptors_do_not_leak_whatever_happens(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def everything() -> None:
        etag = await store.put(KEY, b"one")
        for body in (b"two", b"three"):
            etag = await store.replace(KEY, body, etag)
        for attempt in (
            store.create(KEY, b""),
            store.replace(KEY, b"", "0-0-0"),
            store.get("missing"),
            store.get("folder"),
            store.put("folder", b""),
        ):
            with pytest.raises((PreconditionFailedError, ObjectMissingError, StoreRefusedError)):
                await attempt
        with monkeypatch.context() as patch:
            fail_fsync(patch, errno.EIO, stat.S_ISREG)
            for attempt in (store.put(KEY, b""), store.replace(KEY, b"", etag)):
                with pytest.raises(UnavailableError):
                    await attempt

    (tmp_path / "folder").mkdir()
    await everything()
    before = open_descriptors()
    for _ in range(5):
        await everything()
    assert open_descriptors() == before


async def test_a_closed_store_says_so(store: LocalStore) -> None:
    await store.close()
    with pytest.raises(ClosedError):
        await store.get(KEY)
