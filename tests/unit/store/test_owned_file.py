"""When a file that was replaced is written to again, and when it must not be.

Whoever reads, links, maps or may not see a version is safe from later ones; what disturbs a
spare never disturbs a write. Deaths and slow readers are in ``test_local_processes.py``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bucketq.errors import StoreRefusedError, UnavailableError
from bucketq.store import atomic_file, owned_file
from bucketq.store.base import PreconditionFailedError
from bucketq.store.local import LocalStore

if sys.platform != "linux":
    pytest.skip("only Linux has leases, and so spares", allow_module_level=True)

KEY = "queue.json"
SPARES = [f".bucketq.{KEY}.0.spare", f".bucketq.{KEY}.1.spare"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalStore]:
    opened = LocalStore(tmp_path)
    yield opened
    await opened.close()


class Versions:
    """A file that is replaced as a queue is: each time in place of the version before."""

    def __init__(self, store: LocalStore, path: Path) -> None:
        self._store = store
        self._etag = ""
        self.path = path

    async def begin(self, body: bytes) -> int:
        self._etag = await self._store.create(self.path.name, body)
        return self.inode()

    async def go_on(self, *bodies: bytes) -> int:
        """Write some versions; return the inode of the last."""
        for body in bodies:
            self._etag = await self._store.replace(self.path.name, body, self._etag)
            assert (await self._store.get(self.path.name)).body == body
        return self.inode()

    def inode(self) -> int:
        return self.path.stat().st_ino

    def spares(self) -> list[Path]:
        return sorted(self.path.parent.glob(".bucketq.*.spare"))


@pytest.fixture
def versions(store: LocalStore, tmp_path: Path) -> Versions:
    return Versions(store, tmp_path / KEY)


def during_fill(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Do something each time when a file has been filled, but before it has its name."""
    fill = atomic_file._fill

    def acting_fill(file: int, body: bytes) -> None:
        fill(file, body)
        act(file)

    monkeypatch.setattr(atomic_file, "_fill", acting_fill)


def note_taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str] | None]:
    """The spares that writes use from now on, or None for each that finds none."""
    taken = []
    take = owned_file.take_spare

    def noting_take(directory: int, path: Path) -> tuple[int, str] | None:
        taken.append(take(directory, path))
        return taken[-1]

    monkeypatch.setattr(owned_file, "take_spare", noting_take)
    return taken


async def test_a_file_that_was_replaced_is_used_again(versions: Versions) -> None:
    first = await versions.begin(b"one")
    second = await versions.go_on(b"two")
    with versions.path.open("rb"):
        assert await versions.go_on(b"three") == first
        assert await versions.go_on(b"four") not in {first, second}
    assert len(versions.spares()) == 1


@pytest.mark.parametrize("length", [0, 1, 4096, 100_000, 99_999])
async def test_a_spare_takes_bodies_of_any_length(versions: Versions, length: int) -> None:
    first = await versions.begin(b"x" * 5000)
    await versions.go_on(b"two")
    assert await versions.go_on(b"y" * length) == first
    assert versions.path.read_bytes() == b"y" * length


async def test_who_reads_a_version_in_this_process_keeps_it(versions: Versions) -> None:
    first = await versions.begin(b"one")
    with versions.path.open("rb", buffering=0) as reader:
        assert await versions.go_on(b"two", b"three", b"four") != first
        assert reader.read() == b"one"


async def test_who_has_mapped_a_version_and_closed_it_keeps_it(versions: Versions) -> None:
    await versions.begin(b"one")
    with mapped(versions.path) as content:
        await versions.go_on(b"two", b"six", b"ten")
        assert content() == b"one"


@contextmanager
def mapped(path: Path) -> Any:
    """Map three bytes without a descriptor; Python's own mmap would keep a copy of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    with path.open("rb") as file:
        address = libc.mmap(None, 3, 1, 1, file.fileno(), 0)  # PROT_READ, MAP_SHARED
    assert address != ctypes.c_void_p(-1).value
    try:
        yield lambda: ctypes.string_at(address, 3)
    finally:
        libc.munmap(address, 3)


async def test_a_copy_by_hard_link_is_never_written_to(versions: Versions, tmp_path: Path) -> None:
    await versions.begin(b"one")
    os.link(versions.path, tmp_path / "backup")
    await versions.go_on(b"two", b"three", b"four")
    assert (tmp_path / "backup").read_bytes() == b"one"
    os.link(versions.spares()[0], tmp_path / "another")
    kept = (tmp_path / "another").read_bytes()
    await versions.go_on(b"five", b"six", b"seven")
    assert (tmp_path / "another").read_bytes() == kept


async def test_the_public_file_is_not_written_to_under_a_hidden_name(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    os.link(versions.path, versions.path.with_name(SPARES[0]))  # As a dead writer leaves it.
    found = []
    during_fill(monkeypatch, lambda _: found.append(versions.path.read_bytes()))
    await versions.go_on(b"two", b"three")
    assert found == [b"one", b"two"]


async def test_a_filesystem_that_does_not_count_names_is_not_trusted(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")
    os.link(versions.path, versions.path.with_name(SPARES[0]))
    fstat = os.fstat

    def fstat_of_one_name(file: int) -> os.stat_result:
        info = list(fstat(file))
        info[stat.ST_NLINK] = 1
        return os.stat_result(info)

    directory = os.open(versions.path.parent, os.O_RDONLY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fstat_of_one_name)
        assert owned_file.take_spare(directory, versions.path) is None
    os.close(directory)


@pytest.mark.parametrize("what", ["mode", "owner", "group", "attribute"])
async def test_what_tells_a_spare_from_the_file_keeps_it_from_being_used(
    versions: Versions, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    (spare,) = versions.spares()
    if what == "mode":
        spare.chmod(0o666)
    elif what == "attribute":
        try:
            os.setxattr(spare, "user.colour", b"red")
        except OSError as error:
            pytest.skip(f"this filesystem keeps no attributes: {error}")
    elif os.getuid() == 0:
        os.chown(spare, *((65534, -1) if what == "owner" else (-1, 65534)))
    else:
        pytest.skip("only root may give files away")
    taken = note_taken(monkeypatch)
    await versions.go_on(b"three", b"four")
    assert [name is not None for name in taken] == [False, True]


async def test_rights_that_were_taken_away_do_not_come_back(versions: Versions) -> None:
    await versions.begin(b"one")
    try:
        os.setxattr(versions.path, "user.colour", b"red")
    except OSError as error:
        pytest.skip(f"this filesystem keeps no attributes: {error}")
    for number in range(5):
        await versions.go_on(b"%d" % number)
        assert os.listxattr(versions.path) == []


async def test_spares_belong_to_one_file(store: LocalStore, tmp_path: Path) -> None:
    one, other = Versions(store, tmp_path / "a"), Versions(store, tmp_path / "b")
    first = await one.begin(b"one")
    await other.begin(b"one")
    await one.go_on(b"two")
    await other.go_on(b"two", b"three", b"four")
    assert await one.go_on(b"three") == first


async def test_only_what_is_replaced_again_and_again_leaves_spares(
    store: LocalStore, versions: Versions
) -> None:
    for body in (b"one", b"two", b"three"):
        await store.put("archive", body)
    assert versions.spares() == []
    await versions.begin(b"one")
    await versions.go_on(b"two")
    await store.put(KEY, b"three")
    assert len(versions.spares()) == 1


async def test_a_deleted_file_leaves_no_spare(store: LocalStore, versions: Versions) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    (spare,) = versions.spares()
    spare.with_name(SPARES[1]).write_bytes(b"left by a dead writer")
    await store.put("other", b"")
    await store.delete("other")
    assert len(versions.spares()) == 2
    await store.delete(KEY)
    assert versions.spares() == []


async def test_the_first_write_sweeps_spares_of_files_that_are_gone(tmp_path: Path) -> None:
    for name in (".bucketq.gone.0.spare", ".bucketq.here.0.spare", "here", "x.0.spare"):
        (tmp_path / name).write_bytes(b"")
    store = LocalStore(tmp_path)
    await store.put(KEY, b"one")
    await store.close()
    assert not (tmp_path / ".bucketq.gone.0.spare").exists()
    for name in (".bucketq.here.0.spare", "here", "x.0.spare"):
        assert (tmp_path / name).exists()


async def test_there_are_never_more_than_two_spares(versions: Versions) -> None:
    await versions.begin(b"one")
    in_use = [versions.path.with_name(name).open("wb") for name in SPARES]
    for file in in_use:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b"mine")
        file.flush()
    await versions.go_on(b"two", b"three")
    assert [path.read_bytes() for path in versions.spares()] == [b"mine", b"mine"]
    for file in in_use:
        file.close()
    await versions.go_on(b"four", b"five")
    assert len(versions.spares()) <= 2


async def test_a_spare_that_a_dead_writer_left_torn_is_used_again(versions: Versions) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    versions.spares()[0].write_bytes(b"x" * 70_000)
    await versions.go_on(b"three", b"four")
    assert len(versions.spares()) == 1


def refuse_leases(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    control = fcntl.fcntl

    def refusing_fcntl(file: int, command: int, arg: int = 0) -> int:
        if command == fcntl.F_SETLEASE:
            raise OSError(code, os.strerror(code))
        return control(file, command, arg)

    monkeypatch.setattr(fcntl, "fcntl", refusing_fcntl)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EACCES, errno.EAGAIN, errno.ENOLCK])
async def test_without_leases_nothing_is_used_again_and_nothing_kept(
    versions: Versions, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    await versions.begin(b"one")
    await versions.go_on(b"two")
    refuse_leases(monkeypatch, code)
    await versions.go_on(b"three", b"four")
    assert versions.spares() == []


async def test_a_system_without_leases_keeps_nothing(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    await versions.begin(b"one")
    await versions.go_on(b"two", b"three", b"four")
    assert versions.spares() == []


async def test_a_filesystem_without_hard_links_keeps_nothing(
    versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing_link(*_args: Any, **_options: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    await versions.begin(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refusing_link)
        await versions.go_on(b"two", b"three", b"four")
    assert versions.spares() == []


@pytest.mark.parametrize("what", ["directory", "link", "pipe"])
async def test_what_else_has_the_name_of_a_spare_disturbs_no_write(
    versions: Versions, tmp_path: Path, what: str
) -> None:
    (tmp_path / "target").write_bytes(b"not ours")
    for name in SPARES:
        if what == "directory":
            (tmp_path / name).mkdir()
        elif what == "link":
            (tmp_path / name).symlink_to("target")
        else:
            os.mkfifo(tmp_path / name)
    await versions.begin(b"one")
    await versions.go_on(b"two", b"three", b"four")
    assert (tmp_path / "target").read_bytes() == b"not ours"


async def test_a_name_too_long_for_a_spare_can_be_written(
    store: LocalStore, tmp_path: Path
) -> None:
    versions = Versions(store, tmp_path / ("x" * 255))
    await versions.begin(b"one")
    await versions.go_on(b"two", b"three")
    assert versions.spares() == []


async def test_who_opens_a_file_while_it_is_written_has_to_wait(
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


async def test_who_opens_a_file_while_it_is_written_does_not_end_the_writer(
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
async def test_a_reader_who_is_late_with_opening_finds_the_new_version(
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
    assert len(paths) == 2
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
    with pytest.raises(StoreRefusedError, match="somebody has removed"):
        await versions.go_on(b"three")
    assert (await store.get(KEY)).body == b"two"


async def noted_steps(
    versions: Versions, monkeypatch: pytest.MonkeyPatch, *bodies: bytes
) -> list[str]:
    """What a write does to the disk, in order."""
    steps: list[str] = []

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
    stored = await other_store.get(KEY)
    other = Versions(other_store, versions.path)
    other._etag = stored.etag
    steps = await noted_steps(other, monkeypatch, b"six")
    assert steps == ["fsync", "write", "fdatasync", "link", "rename", "fsync"]
    await other_store.close()


async def test_what_was_replaced_without_a_sync_of_the_directory_is_not_taken_for_settled(
    store: LocalStore, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await versions.begin(b"one")

    def failing(_: int) -> None:
        raise atomic_file.UnsyncedError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_file, "_sync_directory", failing)
        with pytest.raises(UnavailableError):
            await versions.go_on(b"two")
    versions._etag = (await store.get(KEY)).etag
    steps = await noted_steps(versions, monkeypatch, b"six")
    assert steps == ["fsync", "write", "fdatasync", "link", "rename", "fsync"]
