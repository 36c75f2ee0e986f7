"""When a file that was replaced is written to again, and when it must not be.

A version that is open, linked or mapped is never overwritten; what disturbs a spare never
disturbs a write. Deaths and slow readers are in ``test_local_processes.py``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bucketq.store import owned_file
from bucketq.store.local import LocalStore
from tests.unit.store.spares import KEY, SPARES, Versions, during_fill, note_taken

if sys.platform != "linux":
    pytest.skip("only Linux has leases, and so spares", allow_module_level=True)


async def test_a_file_that_was_replaced_is_used_again(versions: Versions) -> None:
    first = await versions.begin(b"one")
    second = await versions.go_on(b"two")
    with versions.path.open("rb"):
        assert await versions.go_on(b"three") == first
        assert await versions.go_on(b"four") not in {first, second}
    assert len(versions.spares()) == 1


@pytest.mark.parametrize("length", [4097, 5000, 8192, 8193, 100_000, 99_999])
async def test_a_spare_takes_bodies_that_need_no_fewer_blocks(
    versions: Versions, length: int
) -> None:
    first = await versions.begin(b"x" * 5000)
    await versions.go_on(b"x" * 5001)
    assert await versions.go_on(b"y" * length) == first
    assert versions.path.read_bytes() == b"y" * length


@pytest.mark.parametrize("length", [0, 1, 4096])
async def test_spares_that_are_too_long_are_left_and_soon_removed(
    versions: Versions, length: int
) -> None:
    first = await versions.begin(b"x" * 5000)
    second = await versions.go_on(b"x" * 5001)
    assert await versions.go_on(b"y" * length) not in {first, second}
    await versions.until(lambda sizes: not sizes)
    third = await versions.go_on(b"z" * length)
    assert [path.stat().st_size for path in versions.spares()] == [length]
    assert await versions.go_on(b"z" * length) != third


async def test_long_spares_of_a_dead_writer_are_removed(versions: Versions) -> None:
    await versions.begin(b"one")
    for name in SPARES:
        path = versions.path.with_name(name)
        path.write_bytes(b"x" * 50_000)
        path.chmod(stat.S_IMODE(versions.path.stat().st_mode))
    await versions.go_on(b"two")
    await versions.until(lambda sizes: max(sizes, default=0) < 4096)


async def test_a_version_that_is_open_in_this_process_is_kept(versions: Versions) -> None:
    first = await versions.begin(b"one")
    with versions.path.open("rb", buffering=0) as reader:
        assert await versions.go_on(b"two", b"three", b"four") != first
        assert reader.read() == b"one"


async def test_a_version_that_is_mapped_and_closed_is_kept(versions: Versions) -> None:
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
        assert owned_file.take_spare(directory, versions.path, 100) is None
    os.close(directory)


@pytest.mark.parametrize("what", ["mode", "owner", "group", "attribute"])
async def test_a_spare_that_differs_from_the_file_is_not_used(
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


async def test_permissions_that_were_revoked_do_not_come_back(versions: Versions) -> None:
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
    not_ours = ("x.0.spare", ".bucketq.gone.\N{ARABIC-INDIC DIGIT ONE}.spare")
    for name in (".bucketq.gone.0.spare", ".bucketq.here.0.spare", "here", *not_ours):
        (tmp_path / name).write_bytes(b"")
    store = LocalStore(tmp_path)
    await store.put(KEY, b"one")
    await store.close()
    assert not (tmp_path / ".bucketq.gone.0.spare").exists()
    for name in (".bucketq.here.0.spare", "here", *not_ours):
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
