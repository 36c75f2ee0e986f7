"""Which users may use the files of a queue, whatever the umask is."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import bucketq
from bucketq.store import atomic_file, directories, file_permissions
from bucketq.store.local import LocalStore

KEY = "queue.json"
GROUP = 12345

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o077], ids=["022", "000", "077"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalStore]:
    opened = LocalStore(tmp_path, like=KEY)
    yield opened
    await opened.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat(follow_symlinks=False).st_mode)


def modes_below(folder: Path) -> dict[str, int]:
    """The modes of everything in a directory, hidden files too."""
    return {str(path.relative_to(folder)): mode_of(path) for path in sorted(folder.rglob("*"))}


async def finish_a_job(url: str) -> None:
    async with bucketq.connect(url, mode="direct") as queue:
        await queue.push("index", {})
        for job in await queue.claim():
            await queue.complete(job)
        await queue.flush_archive()


async def test_everything_that_a_new_queue_makes_is_private(tmp_path: Path) -> None:
    url = (tmp_path / "new" / KEY).as_uri()
    await finish_a_job(url)
    modes = modes_below(tmp_path)
    assert {
        name for name, mode in modes.items() if (tmp_path / name).is_file() and mode != 0o600
    } == set()
    assert {
        name for name, mode in modes.items() if (tmp_path / name).is_dir() and mode != 0o700
    } == set()
    assert any(name.endswith(".jsonl") for name in modes)
    assert "new/.bucketq.lock" in modes


async def test_the_archive_of_a_shared_queue_is_shared(tmp_path: Path) -> None:
    url = (tmp_path / KEY).as_uri()
    async with bucketq.connect(url, mode="direct"):
        (tmp_path / KEY).chmod(0o640)
    await finish_a_job(url)
    modes = modes_below(tmp_path)
    assert modes[KEY] == 0o640
    assert {mode for name, mode in modes.items() if name.endswith(".jsonl")} == {0o640}
    assert {mode for name, mode in modes.items() if (tmp_path / name).is_dir()} == {0o750}


@pytest.mark.parametrize(
    ("mode", "folder_mode"),
    [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755), (0o660, 0o770), (0o400, 0o700)],
    ids=oct,
)
async def test_what_belongs_to_a_queue_takes_the_mode_of_its_file(
    store: LocalStore, tmp_path: Path, mode: int, folder_mode: int
) -> None:
    await store.create(KEY, b"one")
    (tmp_path / KEY).chmod(mode)
    await store.put("queue/archive/1.jsonl", b"")
    await store.create(f"{KEY}.backup", b"")
    assert mode_of(tmp_path / "queue" / "archive" / "1.jsonl") == mode
    assert mode_of(tmp_path / f"{KEY}.backup") == mode
    assert mode_of(tmp_path / "queue") == mode_of(tmp_path / "queue" / "archive") == folder_mode


@as_root
async def test_what_belongs_to_a_queue_takes_owner_and_group_of_its_file(
    store: LocalStore, tmp_path: Path
) -> None:
    await store.create(KEY, b"one")
    os.chown(tmp_path / KEY, 65534, GROUP)
    await store.put("queue/archive/1.jsonl", b"")
    for name in ("queue", "queue/archive", "queue/archive/1.jsonl"):
        info = (tmp_path / name).stat()
        assert (info.st_uid, info.st_gid) == (65534, GROUP)


async def test_directories_that_are_there_are_left_as_they_are(
    store: LocalStore, tmp_path: Path
) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue").chmod(0o751)
    await store.create(KEY, b"one")
    await store.put("queue/1.jsonl", b"")
    assert mode_of(tmp_path / "queue") == 0o751


async def test_a_file_that_is_put_again_keeps_its_mode(store: LocalStore, tmp_path: Path) -> None:
    await store.create(KEY, b"one")
    await store.put("1.jsonl", b"")
    (tmp_path / "1.jsonl").chmod(0o604)
    await store.put("1.jsonl", b"again")
    assert mode_of(tmp_path / "1.jsonl") == 0o604


async def test_a_temporary_file_that_a_dead_writer_left_is_made_private_before_it_is_filled(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp = tmp_path / ".bucketq.0.tmp"
    await store.put("other", b"")  # Or the first write would sweep it.
    temp.write_bytes(b"left")
    temp.chmod(0o666)
    fill, seen = atomic_file._fill, []

    def noting_fill(file: int, body: bytes) -> None:
        seen.append(stat.S_IMODE(os.fstat(file).st_mode))
        fill(file, body)

    monkeypatch.setattr(atomic_file, "_fill", noting_fill)
    await store.create(KEY, b"secret")
    assert seen == [0o600]
    assert mode_of(tmp_path / KEY) == 0o600


@pytest.mark.parametrize("trap", ["linked", "owned"])
async def test_a_temporary_file_that_another_user_may_have_laid_out_is_not_used(
    store: LocalStore, tmp_path: Path, trap: str
) -> None:
    temp, precious = tmp_path / ".bucketq.0.tmp", tmp_path / "precious"
    await store.put("other", b"")
    precious.write_bytes(b"do not overwrite")
    if trap == "linked":
        temp.hardlink_to(precious)
    elif os.getuid() == 0:
        temp.write_bytes(b"")
        os.chown(temp, 65534, 65534)
    else:
        pytest.skip("only root may give files away")
    await store.create(KEY, b"secret")
    assert (tmp_path / KEY).read_bytes() == b"secret"
    assert (tmp_path / KEY).stat().st_uid == os.geteuid()
    assert precious.read_bytes() == b"do not overwrite"


@pytest.mark.parametrize(
    ("folder_mode", "lock_mode"),
    [(0o700, 0o600), (0o755, 0o600), (0o775, 0o660), (0o1777, 0o666)],
    ids=oct,
)
async def test_users_who_may_write_in_the_directory_can_take_its_lock(
    tmp_path: Path, folder_mode: int, lock_mode: int
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    store = LocalStore(folder)
    await store.put("one", b"")
    assert mode_of(folder / ".bucketq.lock") == 0o600
    folder.chmod(folder_mode)
    await store.put("one", b"again")
    assert mode_of(folder / ".bucketq.lock") == lock_mode
    await store.close()


@as_root
async def test_a_lock_that_root_makes_belongs_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    os.chown(folder, 65534, GROUP)
    store = LocalStore(folder)
    await store.put("one", b"")
    assert (folder / ".bucketq.lock").stat().st_uid == 65534
    await store.close()


SHARED_BY_A_GROUP = """
import asyncio, os, pathlib, sys
from bucketq.store.local import LocalStore

async def main():
    os.setgroups([int(sys.argv[3])])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
    store = LocalStore(pathlib.Path(sys.argv[1]), like="queue.json")
    found = await store.get("queue.json")
    await store.replace("queue.json", found.body + sys.argv[2].encode(), found.etag)
    await store.put("queue/archive/" + sys.argv[2], b"")

asyncio.run(main())
"""


@as_root
def test_two_users_of_a_group_share_a_queue() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        os.chown(folder, 0, GROUP)
        folder.chmod(0o2775)
        (folder / KEY).write_bytes(b"")
        os.chown(folder / KEY, 0, GROUP)
        (folder / KEY).chmod(0o660)
        for user in (4001, 4002, 4001):
            subprocess.run(
                [sys.executable, "-c", SHARED_BY_A_GROUP, str(folder), str(user), str(GROUP)],
                env={**os.environ, "PYTHONPATH": str(Path(bucketq.__file__).parents[1])},
                check=True,
            )
        assert (folder / KEY).read_bytes() == b"400140024001"
        for made in (KEY, "queue/archive/4001", "queue/archive/4002"):
            info = (folder / made).stat()
            assert (stat.S_IMODE(info.st_mode), info.st_gid) == (0o660, GROUP)


@as_root
def test_a_group_that_cannot_be_kept_gives_no_permissions_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = tmp_path / "model", tmp_path / "other"
    model.write_bytes(b"")
    os.chown(model, 0, GROUP)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    for mode, narrowed in ((0o640, 0o600), (0o660, 0o600), (0o664, 0o644), (0o666, 0o666)):
        model.chmod(mode)
        file = os.open(other, os.O_RDWR | os.O_CREAT)
        file_permissions.copy_to_file(file, model.stat())
        os.close(file)
        assert mode_of(other) == narrowed


def test_a_lock_that_belongs_to_another_user_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".bucketq.lock").write_bytes(b"")
    tmp_path.chmod(0o777)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchmod", refuse)
    directory = os.open(tmp_path, os.O_RDONLY)
    again = os.open(tmp_path / ".bucketq.lock", os.O_RDONLY)
    with directories.locked(directory, threading.Event()), pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    os.close(directory)
