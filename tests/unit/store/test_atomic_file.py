"""How a file is replaced: its time, its lock, its temporary file and the order of syncing.

Spares are in ``test_owned_file.py``; other processes, and their sudden deaths, in
``test_local_processes.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import stat
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bucketq.errors import StoreRefusedError
from bucketq.store import atomic_file, directories, owned_file
from bucketq.store.base import StoredObject
from bucketq.store.local import LocalStore
from tests.unit.store.spares import visible_names

KEY = "queue.json"


async def test_the_time_of_a_file_rises_even_if_the_clock_stands_still(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = atomic_file._fill

    def fill_at_noon(temp: int, body: bytes) -> None:
        fill(temp, body)
        os.utime(temp, ns=(10**18, 10**18))

    monkeypatch.setattr(atomic_file, "_fill", fill_at_noon)
    etag = await store.create(KEY, b"00")
    times_ns = [(tmp_path / KEY).stat().st_mtime_ns]
    for number in range(1, 20):
        etag = await store.replace(KEY, b"%02d" % number, etag)
        times_ns.append((tmp_path / KEY).stat().st_mtime_ns)
    await store.put(KEY, b"20")
    times_ns.append((tmp_path / KEY).stat().st_mtime_ns)
    await store.delete(KEY)
    await store.create(KEY, b"21")
    times_ns.append((tmp_path / KEY).stat().st_mtime_ns)
    assert times_ns == sorted(set(times_ns))


async def test_the_time_of_a_file_rises_when_the_clock_was_set_back(
    store: LocalStore, tmp_path: Path
) -> None:
    await store.create(KEY, b"one")
    in_2100_ns = 4_102_444_800 * 10**9
    os.utime(tmp_path / KEY, ns=(in_2100_ns, in_2100_ns))
    etag = (await store.get(KEY)).etag
    await store.replace(KEY, b"two", etag)
    assert (tmp_path / KEY).stat().st_mtime_ns > in_2100_ns
    await store.delete(KEY)
    await store.create(KEY, b"six")
    assert (tmp_path / KEY).stat().st_mtime_ns > in_2100_ns


async def test_the_time_of_a_file_rises_even_if_the_filesystem_rounds_it(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_rounded_time(descriptor: int, time_ns: int) -> None:
        rounded_ns = time_ns // (2 * 10**9) * (2 * 10**9)
        os.utime(descriptor, ns=(rounded_ns, rounded_ns))

    await store.create(KEY, b"one")
    in_2100_ns = 4_102_444_800 * 10**9
    os.utime(tmp_path / KEY, ns=(in_2100_ns, in_2100_ns))
    monkeypatch.setattr(atomic_file, "_set_time", set_rounded_time)
    etag = (await store.get(KEY)).etag
    etags = {etag}
    for _ in range(5):
        etag = await store.replace(KEY, b"two", etag)
        etags.add(etag)
    assert len(etags) == 6


async def test_a_file_whose_time_cannot_rise_is_refused(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = await store.create(KEY, b"one")
    in_2100_ns = 4_102_444_800 * 10**9
    os.utime(tmp_path / KEY, ns=(in_2100_ns, in_2100_ns))
    etag = (await store.get(KEY)).etag
    monkeypatch.setattr(atomic_file, "_set_time", lambda _descriptor, _time_ns: None)
    with pytest.raises(StoreRefusedError, match="later time"):
        await store.replace(KEY, b"two", etag)
    assert (tmp_path / KEY).read_bytes() == b"one"
    assert visible_names(tmp_path) == {KEY}


async def test_a_write_syncs_the_file_before_the_rename_and_the_directory_after_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create(KEY, b"one")
    steps = []
    fsync, fdatasync, rename = os.fsync, os.fdatasync, os.rename

    def noting_fsync(descriptor: int) -> None:
        assert stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append("sync directory")
        fsync(descriptor)

    def noting_fdatasync(descriptor: int) -> None:
        steps.append("sync file")
        fdatasync(descriptor)

    def noting_rename(*args: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        steps.append("rename")
        rename(*args, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "fdatasync", noting_fdatasync)
    monkeypatch.setattr(os, "rename", noting_rename)
    await store.put(KEY, b"two")
    assert steps == ["sync file", "rename", "sync directory"]


async def test_a_cancelled_write_leaves_nothing_locked_and_nothing_torn(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = await store.create(KEY, b"one")
    fill = atomic_file._fill
    has_begun, may_go_on, has_ended = threading.Event(), threading.Event(), threading.Event()
    release = owned_file.release

    def slow_fill(temp: int, body: bytes) -> None:
        has_begun.set()
        may_go_on.wait()
        fill(temp, body)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "_fill", slow_fill)
        writing = asyncio.create_task(store.replace(KEY, b"two", etag))
        await asyncio.to_thread(has_begun.wait)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
    await store.replace(KEY, b"six", etag)

    def noting_release(descriptor: int) -> None:
        release(descriptor)
        has_ended.set()

    monkeypatch.setattr(owned_file, "release", noting_release)
    may_go_on.set()
    await asyncio.to_thread(has_ended.wait)
    await store.put("other", b"")
    assert (await store.get(KEY)).body == b"six"


async def test_two_writers_never_compare_and_rename_at_the_same_time(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename
    meeting = threading.Barrier(2)
    has_met = []

    def waiting_rename(*names: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(timeout=0.2)
            has_met.append(True)
        rename(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "rename", waiting_rename)
    await asyncio.gather(store.put(KEY, b"one"), store.put(KEY, b"two"))
    assert not has_met


async def test_what_can_be_done_without_the_lock_is_done_without_it(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped while it holds the lock blocks every other writer."""
    etag = await store.replace(KEY, b"two", await store.create(KEY, b"one"))
    calls: list[str] = []

    def noting(module: ModuleType, name: str) -> None:
        call = getattr(module, name)

        def noting_call(*args: Any, **options: Any) -> Any:
            result = call(*args, **options)
            calls.append(f"{name} {args[1]}" if name == "flock" else name)
            return result

        monkeypatch.setattr(module, name, noting_call)

    for name in ("open", "access", "fchmod", "utime", "write", "fsync", "fdatasync"):
        noting(os, name)
    for name in ("stat", "fstat", "link", "unlink", "rename"):
        noting(os, name)
    for name in ("flock", "fcntl"):
        noting(fcntl, name)
    await store.replace(KEY, b"six", etag)
    locking = f"flock {fcntl.LOCK_EX | fcntl.LOCK_NB}"
    assert calls.count(locking) == 2, "the spare and the directory, each at the first try"
    held = calls[len(calls) - calls[::-1].index(locking) :]
    held = held[: held.index(f"flock {fcntl.LOCK_UN}")]
    assert held[-1] == "rename"
    assert set(held[:-1]) == {"stat", "fstat"}
    assert len(held) <= 6
    assert "link" in calls


async def test_a_version_that_comes_between_is_followed_in_time_and_mode(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(KEY, b"one")
    in_2100_ns = 4_102_444_800 * 10**9
    take = directories._take
    other = tmp_path / "other"

    def take_late(lock: int, given_up: threading.Event) -> None:
        other.write_bytes(b"by another writer")
        other.chmod(0o640)
        os.utime(other, ns=(in_2100_ns, in_2100_ns))
        other.rename(tmp_path / KEY)
        take(lock, given_up)

    monkeypatch.setattr(directories, "_take", take_late)
    etag = await store.put(KEY, b"two")
    info = (tmp_path / KEY).stat()
    assert info.st_mtime_ns > in_2100_ns
    assert stat.S_IMODE(info.st_mode) == 0o640
    assert (await store.get(KEY)) == StoredObject(b"two", etag)


async def test_a_lock_file_that_was_removed_by_hand_is_made_again(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etag = await store.create(KEY, b"one")
    take = directories._take
    removals = ["once"]

    def take_and_lose(lock: int, given_up: threading.Event) -> None:
        take(lock, given_up)
        if removals:
            removals.clear()
            (tmp_path / ".bucketq.lock").unlink()

    monkeypatch.setattr(directories, "_take", take_and_lose)
    await store.replace(KEY, b"two", etag)
    assert not removals
    assert (tmp_path / ".bucketq.lock").exists()


async def test_a_caller_that_gives_up_lets_its_thread_stop_waiting_for_the_lock(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_LONGEST_WAIT_S", 3600.0)
    etag = await store.create(KEY, b"one")
    take = directories._take
    has_begun, has_ended = threading.Event(), threading.Event()

    def noted_take(lock: int, given_up: threading.Event) -> None:
        has_begun.set()
        try:
            take(lock, given_up)
        finally:
            has_ended.set()

    monkeypatch.setattr(directories, "_take", noted_take)
    with (tmp_path / ".bucketq.lock").open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        for attempt in (store.replace(KEY, b"two", etag), store.delete(KEY)):
            has_begun.clear()
            has_ended.clear()
            waiting = asyncio.create_task(attempt)
            assert await asyncio.to_thread(has_begun.wait, 30)
            waiting.cancel()
            assert await asyncio.to_thread(has_ended.wait, 30)
    assert (await store.get(KEY)).body == b"one"


def test_a_lock_ends_though_a_forked_child_has_a_copy_of_its_descriptor(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    with directories.locked(directory, threading.Event()) as lock:
        copy = os.dup(lock)
    with (tmp_path / ".bucketq.lock").open() as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(copy)
    os.close(directory)


async def test_a_temporary_file_in_use_is_neither_taken_nor_swept(tmp_path: Path) -> None:
    temp = tmp_path / ".bucketq.0.tmp"
    with temp.open("wb") as in_use:
        fcntl.flock(in_use, fcntl.LOCK_EX)
        store = LocalStore(tmp_path)
        await store.put(KEY, b"one")
        assert visible_names(tmp_path) == {KEY, temp.name}
        assert in_use.write(b"still mine") == 10
    assert temp.read_bytes() == b"still mine"
    await store.put(KEY, b"two")
    assert visible_names(tmp_path) == {KEY}
    assert (tmp_path / KEY).read_bytes() == b"two"
    await store.close()


async def test_a_temporary_name_that_another_writer_takes_after_the_rename_is_left_to_it(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def rename_and_be_followed(source: str, *args: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        rename(source, *args, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        (tmp_path / source).write_bytes(b"by another writer")

    monkeypatch.setattr(os, "rename", rename_and_be_followed)
    await store.put(KEY, b"one")
    assert (tmp_path / ".bucketq.0.tmp").read_bytes() == b"by another writer"


async def test_a_temporary_file_that_takes_its_name_just_before_it_is_locked_is_left_alone(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp, published = tmp_path / ".bucketq.0.tmp", tmp_path / "other.json"
    await store.put(KEY, b"one")
    temp.write_bytes(b"by another writer")
    flock = fcntl.flock

    def late_flock(descriptor: int, operation: int) -> None:
        if not published.exists():
            temp.rename(published)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late_flock)
    await store.put(KEY, b"two")
    assert published.read_bytes() == b"by another writer"
    assert (tmp_path / KEY).read_bytes() == b"two"


async def test_the_first_write_sweeps_what_dead_writers_left(tmp_path: Path) -> None:
    for number in (0, 1, 5, 12):
        (tmp_path / f".bucketq.{number}.tmp").write_bytes(b"x" * 100)
    store = LocalStore(tmp_path)
    await store.put(KEY, b"one")
    assert visible_names(tmp_path) == {KEY}
    assert (await store.get(KEY)).body == b"one"
    await store.close()


async def test_a_replaced_file_keeps_its_mode(store: LocalStore, tmp_path: Path) -> None:
    etag = await store.create(KEY, b"one")
    (tmp_path / KEY).chmod(0o640)
    await store.replace(KEY, b"two", etag)
    assert stat.S_IMODE((tmp_path / KEY).stat().st_mode) == 0o640


async def test_a_file_replaced_by_root_keeps_its_owner(store: LocalStore, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root may give files away")
    etag = await store.create(KEY, b"one")
    os.chown(tmp_path / KEY, 65534, 65534)
    await store.replace(KEY, b"two", etag)
    info = (tmp_path / KEY).stat()
    assert (info.st_uid, info.st_gid) == (65534, 65534)


def test_a_system_without_file_locks_raises_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    spec = importlib.util.spec_from_file_location("without_locks", atomic_file.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match="keep the queue on object storage instead"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
