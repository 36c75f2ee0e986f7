"""Handlers that start processes, for tests of how those end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

if os.environ.get("BUCKETQ_TEST_HANGS") and multiprocessing.parent_process() is not None:
    Path(os.environ["BUCKETQ_TEST_HANGS"]).write_text(str(os.getpid()))
    time.sleep(600)


def note(path: str, *pids: int) -> None:
    """Write numbers of processes to a file, whole."""
    mark = Path(f"{path}.new")
    mark.write_text(" ".join(map(str, pids)))
    mark.rename(path)


def fork_and_die(path: str) -> None:
    """Leave a fork of this process behind, with everything that it has open."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    note(path, child)
    os._exit(7)


def die_without_hooks(path: str) -> None:
    """The same, by a fork that Python does not know of."""
    program = "import os, sys, time; sys.stdin.read(); time.sleep(600)"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        close_fds=False,
        pass_fds=_files(),
    )
    note(path, child.pid)
    os._exit(7)


def _files() -> list[int]:
    """The files of this process beyond the standard ones, its pipes to the worker among them."""
    return [number for number in range(3, 64) if Path(f"/proc/self/fd/{number}").exists()]


def start_and_hang(path: str) -> None:
    """Wait for a program that takes long."""
    program = subprocess.Popen(["sleep", "600"])
    note(path, os.getpid(), program.pid)
    program.wait()


def square(number: int) -> int:
    return number * number


def compute(method: str) -> list[int]:
    """Use several cores."""
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        return pool.map(square, range(4))


def terminate() -> int:
    """Terminate a program with SIGTERM."""
    program = subprocess.Popen(["sleep", "600"])
    program.terminate()
    return program.wait()


def terminate_a_fork() -> int:
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
