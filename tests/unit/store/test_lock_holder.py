"""Which process holds a file lock."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bucketq.store import lock_holder
from bucketq.store.lock_holder import Holder, find_holder

HOLDER = """
import fcntl, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who holds a lock")
def test_the_holder_is_found_and_whether_it_is_stopped(tmp_path: Path) -> None:
    path, other = tmp_path / "lock", tmp_path / "other"
    path.touch()
    other.touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", HOLDER, str(path)]
    with (
        path.open() as lock,
        other.open() as free,
        subprocess.Popen(command, **pipes) as process,  # type: ignore[call-overload]
    ):
        try:
            assert process.stdout.readline() == b"held\n"
            assert find_holder(lock.fileno()) == Holder(process.pid, is_stopped=False)
            assert find_holder(free.fileno()) is None
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            assert find_holder(lock.fileno()) == Holder(process.pid, is_stopped=True)
        finally:
            process.kill()


@pytest.mark.parametrize(
    "table",
    [
        "",
        "\n1: FLOCK\n",
        "1: POSIX  ADVISORY  WRITE 4242 {file} 0 EOF\n",
        "1: -> FLOCK  ADVISORY  WRITE 4242 {file} 0 EOF\n",
        "1: FLOCK  ADVISORY  WRITE 0 {file} 0 EOF\n",
        "1: FLOCK  ADVISORY  WRITE -1 {file} 0 EOF\n",
        "1: FLOCK  ADVISORY  WRITE 4242 ff:ff:1 0 EOF\n",
        None,
    ],
)
def test_a_holder_that_is_not_named_is_not_guessed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str | None
) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        info = os.fstat(lock.fileno())
        file = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
        locks = tmp_path / "locks"
        if table is not None:
            locks.write_text(table.format(file=file))
        monkeypatch.setattr(lock_holder, "_LOCKS", locks)
        assert find_holder(lock.fileno()) is None
        locks.write_text(f"1: FLOCK  ADVISORY  WRITE 999999999 {file} 0 EOF\n")
        assert find_holder(lock.fileno()) == Holder(999999999, is_stopped=False)
