"""What happens while a file is written to again: opening it waits, and failures leave no trace.

The order of what is synced is here as well; which files are used is in ``test_owned_file.py``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bucketq.errors import NotDurableError, StoreRefusedError, UnavailableError
from bucketq.store import atomic_file, owned_file
from bucketq.store.base import PreconditionFailedError
from bucketq.store.local import LocalStore
from tests.unit.store.disk import Disk
from tests.unit.store.spares import KEY, Versions, during_fill

if sys.platform != "linux":
    pytest.skip("only Linux has leases, and so spares", allow_module_level=True)


async def test_opening_a_file_while_it_is_written_waits(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    (spare,) = versions.spares()
    begun, found = threading.Event(), []

    def read_spare() -> None:
        begun.set()
        found.append(spare.read_bytes())

    reader = threading.Thread(target=read_spare)
    fill = atomic_file._fill

    def slow_fill(file: int, body: bytes) -> None:
        os.write(file, b"torn")
        reader.start()
        begun.wait()
        reader.join(0.1)
        os.lseek(file, 0, os.SEEK_SET)
        fill(file, body)

    monkeypatch.setattr(atomic_file, "_fill", slow_fill)
    await versions.go_on(b"three")
    reader.join()
    assert found == [b"three"]


async def test_a_file_that_has_its_name_can_be_opened_at_once(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, found = os.rename, []

    def rename_and_read(*args: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        rename(*args, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        found.append(atomic_file.read(versions.path, None)[0])

    await versions.begin(b"one")
    monkeypatch.setattr(os, "rename", rename_and_read)
    await versions.go_on(b"two", b"three")
    assert found == [b"two", b"three"]


async def test_opening_a_file_while_it_is_written_does_not_kill_the_writer(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    (spare,) = versions.spares()
    refusals, signals = [], []

    def knock(_: int) -> None:
        try:
            os.close(os.open(spare, os.O_RDONLY | os.O_NONBLOCK))
        except BlockingIOError:
            refusals.append(True)

    during_fill(monkeypatch, knock)
    before = signal.signal(signal.SIGIO, lambda number, _: signals.append(number))
    try:
        await versions.go_on(b"three")
    finally:
        signal.signal(signal.SIGIO, before)
    assert refusals
    assert not signals


@pytest.mark.parametrize("is_written_to", [True, False], ids=["leased", "left torn"])
async def test_a_reader_that_opens_late_finds_the_new_version(
    versions: Versions, monkeypatch: pytest.MonkeyPatch, is_written_to: bool
) -> None:
    """Between looking up a name and opening the file, the file can become a spare."""
    await versions.begin(b"one")
    await versions.go_on(b"two")
    (spare,) = versions.spares()
    spare.write_bytes(b"to")
    writer = os.open(spare, os.O_RDWR)
    assert owned_file.lease(writer)
    if not is_written_to:
        owned_file.end_lease(writer)
    open_now, paths = os.open, []

    def late_open(path: Path, flags: int) -> int:
        paths.append(path)
        return open_now(spare if len(paths) == 1 else path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", late_open)
        body, etag = atomic_file.read(versions.path, None)
    assert body == b"two"
    assert etag == atomic_file.etag_of(versions.path.stat())
    assert paths.count(versions.path) == 2
    os.close(writer)


async def test_a_file_that_another_program_has_leased_cannot_be_read_for_now(
    store: LocalStore, versions: Versions
) -> None:
    await versions.begin(b"one")
    other = os.open(versions.path, os.O_RDWR)
    assert owned_file.lease(other)
    with pytest.raises(UnavailableError):
        await store.get(KEY)
    os.close(other)
    assert (await store.get(KEY)).body == b"one"


def test_a_lease_ends_though_a_forked_child_has_a_copy_of_its_descriptor(tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert owned_file.lease(file)
    copy = os.dup(file)
    owned_file.release(file)
    assert fcntl.fcntl(copy, fcntl.F_GETLEASE) == fcntl.F_UNLCK
    os.close(copy)


@pytest.mark.parametrize("call", ["write", "ftruncate", "fdatasync"])
async def test_a_spare_that_could_not_be_filled_is_thrown_away(
    store: LocalStore,
    versions: Versions,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    first = await versions.begin(b"a long one")
    await versions.go_on(b"two")
    assert versions.spares()[0].stat().st_ino == first

    def failing(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(UnavailableError):
            await versions.go_on(b"three")
    assert versions.spares() == []
    assert (await store.get(KEY)).body == b"two"
    await versions.go_on(b"three", b"four")


async def test_a_writer_that_lost_leaves_the_file_alone(
    store: LocalStore, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    during_fill(monkeypatch, lambda _: versions.path.write_bytes(b"edited"))
    with pytest.raises(PreconditionFailedError):
        await versions.go_on(b"three")
    assert (await store.get(KEY)).body == b"edited"
    assert versions.spares() == []


async def test_a_spare_that_is_removed_by_hand_while_it_is_filled_is_not_taken_for_another(
    store: LocalStore, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    (spare,) = versions.spares()

    def swap(_: int) -> None:
        spare.unlink()
        os.link(versions.path, spare)

    during_fill(monkeypatch, swap)
    with pytest.raises(StoreRefusedError, match="another process has removed"):
        await versions.go_on(b"three")
    assert (await store.get(KEY)).body == b"two"


async def noted_steps(
    versions: Versions,
    monkeypatch: pytest.MonkeyPatch,
    *bodies: bytes,
    into: list[str] | None = None,
) -> list[str]:
    """What a write does to the disk, in order."""
    steps: list[str] = [] if into is None else into

    def noting(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def noting_call(*args: Any, **options: Any) -> Any:
            result = call(*args, **options)
            steps.append(name)
            return result

        return noting_call

    with monkeypatch.context() as patch:
        for name in ("write", "ftruncate", "fdatasync", "fsync", "link", "rename"):
            patch.setattr(os, name, noting(name))
        await versions.go_on(*bodies)
    return steps


async def test_a_spare_is_overwritten_then_cut_then_synced_and_has_its_name_after_that(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"a long one")
    await versions.go_on(b"two")
    steps = await noted_steps(versions, monkeypatch, b"three")
    assert steps == ["write", "ftruncate", "fdatasync", "link", "rename", "fsync"]


async def test_what_another_has_replaced_is_overwritten_only_after_a_sync_of_the_directory(
    versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may not know yet that it was replaced: losing power, it would be torn."""
    await versions.begin(b"one")
    await versions.go_on(b"two")
    other_store = LocalStore(tmp_path)
    other = Versions(other_store, versions.path)
    other._etag = versions._etag
    steps = await noted_steps(other, monkeypatch, b"six")
    assert steps == ["fsync", "write", "fdatasync", "link", "rename", "fsync"]
    await other_store.close()


async def test_what_was_replaced_by_a_version_that_was_read_is_overwritten_without_another_sync(
    versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a version syncs the directory, and with it that the one before lost its name."""
    await versions.begin(b"one")
    await versions.go_on(b"two")
    other_store = LocalStore(tmp_path)
    other = Versions(other_store, versions.path)
    other._etag = (await other_store.get(KEY)).etag
    steps = await noted_steps(other, monkeypatch, b"six")
    assert steps == ["write", "fdatasync", "link", "rename", "fsync"]
    await other_store.close()


async def test_what_is_replaced_while_a_spare_is_taken_is_overwritten_only_after_a_sync(
    versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that was read is known to be durable; that it lost its name since is not."""
    await versions.begin(b"one")
    await versions.go_on(b"two")
    take = owned_file.take_spare

    def take_later(directory: int, path: Path, size_bytes: int) -> tuple[int, str] | None:
        # Another writer makes the version that this one has read a spare, and is about to sync.
        for spare in versions.spares():
            spare.unlink()
        os.link(path, path.with_name(f".bucketq.{KEY}.0.spare"))
        (tmp_path / "third").write_bytes(b"three")
        (tmp_path / "third").chmod(stat.S_IMODE(path.stat().st_mode))
        (tmp_path / "third").rename(path)
        return take(directory, path, size_bytes)

    monkeypatch.setattr(owned_file, "take_spare", take_later)
    steps: list[str] = []
    with pytest.raises(PreconditionFailedError):
        await noted_steps(versions, monkeypatch, b"six", into=steps)
    assert steps == ["link", "rename", "fsync", "write", "fdatasync"]  # The first two by another.


async def test_a_spare_is_not_overwritten_if_the_sync_before_it_fails(
    versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    disk, other_store = Disk(monkeypatch), LocalStore(tmp_path)
    disk.failures_left = 1
    with pytest.raises(NotDurableError):
        await other_store.replace(KEY, b"six", versions._etag)
    assert [spare.read_bytes() for spare in versions.spares()] in ([], [b"one"])
    assert versions.path.read_bytes() == b"two"
    await other_store.close()


async def test_what_was_replaced_without_a_sync_of_the_directory_is_not_taken_for_settled(
    versions: Versions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    with monkeypatch.context() as patch:
        Disk(patch).failures_left = 1
        with pytest.raises(NotDurableError):
            await versions.go_on(b"two")
    other_store = LocalStore(tmp_path)
    other = Versions(other_store, versions.path)
    other._etag = atomic_file.etag_of(versions.path.stat())
    steps = await noted_steps(other, monkeypatch, b"six")
    assert steps == ["fsync", "write", "fdatasync", "link", "rename", "fsync"]
    await other_store.close()
