"""The file store as a user or a process that is not allowed everything."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bucketq
from bucketq.store import atomic_file
from tests.unit.store.spares import visible_names

KEY = "queue.json"


FILE_SIZE_LIMITED = """
import asyncio, pathlib, resource, sys
from bucketq.errors import StoreRefusedError
from bucketq.store.local import LocalStore

async def main():
    store = LocalStore(pathlib.Path(sys.argv[1]))
    etag = await store.create("queue.json", b"one")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        await store.replace("queue.json", b"x" * 5000, etag)
    except StoreRefusedError as error:
        print(error)
    assert (await store.get("queue.json")).body == b"one"

asyncio.run(main())
"""

WITHOUT_RIGHTS = """
import asyncio, os, pathlib, sys
from bucketq.errors import StoreRefusedError
from bucketq.store.local import LocalStore

async def main():
    store = LocalStore(pathlib.Path(sys.argv[1]))
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    body = (await store.get("readable")).body
    for attempt in (
        store.get("secret"), store.create("new", b""), store.put("readable", b""),
        store.delete("readable"), store.put("closed/new", b""),
    ):
        try:
            await attempt
        except StoreRefusedError as error:
            print(error)

asyncio.run(main())
"""


WITHOUT_LISTING = """
import asyncio, os, pathlib, sys
# All of it now: that user may not be able to read the package.
import ctypes
import bucketq.commit.direct_committer
import bucketq.store.local
from bucketq import connect
from bucketq.errors import StoreRefusedError

async def main():
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    async with connect(pathlib.Path(sys.argv[1]).as_uri(), mode="direct") as queue:
        print(len((await queue.jobs()).jobs))
        try:
            await queue.push("index", 1)
        except StoreRefusedError as error:
            print(error)

asyncio.run(main())
"""


READ_ONLY_FILE = """
import asyncio, os, pathlib, shutil, tempfile
from bucketq.errors import StoreRefusedError
from bucketq.store.local import LocalStore

async def main(folder):
    store = LocalStore(folder)
    etag = await store.create("queue.json", b"one")
    (folder / "queue.json").chmod(0o444)
    for attempt in (store.replace("queue.json", b"two", etag), store.put("queue.json", b"two")):
        try:
            await attempt
        except StoreRefusedError as error:
            print(error)
    assert (await store.get("queue.json")).body == b"one"

if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
folder = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
try:
    asyncio.run(main(folder))
finally:
    shutil.rmtree(folder)
"""


def run_script(script: str, folder: Path) -> list[str]:
    source = Path(atomic_file.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def test_a_limit_on_file_sizes_refuses_the_write_and_keeps_the_old_version(tmp_path: Path) -> None:
    (message,) = run_script(FILE_SIZE_LIMITED, tmp_path)
    assert message.endswith("queue.json: file too large; raise the limit on file sizes (ulimit -f)")
    assert visible_names(tmp_path) == {KEY}


def test_a_read_only_file_is_not_written_though_a_rename_could(tmp_path: Path) -> None:
    messages = run_script(READ_ONLY_FILE, tmp_path)
    assert len(messages) == 2
    assert all("queue.json: permission denied" in message for message in messages)


@contextlib.contextmanager
def reachable(folder: Path, mode: int) -> Iterator[None]:
    """Give a directory a mode, and let every user reach it."""
    opened = [path for path in folder.parents if os.getuid() == path.stat().st_uid]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in opened]
    try:
        for path, before in zip(opened, modes, strict=True):
            path.chmod(before | 0o111)
        folder.chmod(mode)
        yield
    finally:
        folder.chmod(0o755)
        for path, before in zip(opened, modes, strict=True):
            path.chmod(before)


def test_missing_permissions_are_reported_with_the_path(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "rights"
    folder.mkdir()
    (folder / "readable").write_bytes(b"one")
    (folder / "secret").write_bytes(b"two")
    (folder / "secret").chmod(0)
    (folder / "closed").mkdir(mode=0)
    with reachable(folder, 0o555):
        messages = run_script(WITHOUT_RIGHTS, folder)
    assert len(messages) == 5
    for name, message in zip(
        ("secret", "new", "readable", "readable", "closed/new"), messages, strict=True
    ):
        assert f"{folder / name}: permission denied; give this user permission" in message
    assert visible_names(folder) == {"readable", "secret", "closed"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has syncfs")
def test_a_queue_is_read_in_a_directory_that_may_not_be_listed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "unlisted" / KEY
    path.parent.mkdir()
    with bucketq.connect_sync(path.as_uri(), mode="direct") as queue:
        queue.push("index", 1)
    path.chmod(0o444)
    with reachable(path.parent, 0o311):
        queued, refusal = run_script(WITHOUT_LISTING, path)
    assert queued == "1"
    assert "permission denied; give this user permission" in refusal
