"""A process that writes to a file store, for tests that stop, kill or starve it.

It imports what it needs once and then forks a fresh writer for each line on its standard
input: ``COMMAND FOLDER NUMBER``. The writer's first line of output is its process id; what
follows is the command's. When it has been stopped there is a line ``stopped``, and when it has
ended, however it did, a line ``ended``.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bucketq.store.base import PreconditionFailedError
from bucketq.store.local import LocalStore

KEY = "queue.json"
SYSTEM_CALLS = (
    *("open", "close", "stat", "fstat", "listxattr", "write", "ftruncate", "utime"),
    *("fsync", "fdatasync", "link", "rename", "unlink"),
)


def counter_body(count: int) -> bytes:
    """A body of a size that varies with its content, and can be checked for being whole.

    All of them take five blocks of a disk, so that each fits in a spare of any other.
    """
    payload = "x" * (16_400 + 997 * count % 3_900)
    digest = hashlib.sha256(f"{count}{payload}".encode()).hexdigest()
    return json.dumps({"count": count, "payload": payload, "digest": digest}).encode()


def counter_value(body: bytes) -> int:
    """Decode a body; raise if it is not whole."""
    value = json.loads(body)
    count: int = value["count"]
    assert value["digest"] == hashlib.sha256(f"{count}{value['payload']}".encode()).hexdigest()
    return count


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def increment(store: LocalStore) -> int:
    """Add one to the counter; return what it is then."""
    while True:
        stored = await store.get(KEY)
        count = counter_value(stored.body) + 1
        try:
            await store.replace(KEY, counter_body(count), stored.etag)
        except PreconditionFailedError:
            continue
        return count


async def increment_times(folder: Path, times: int) -> None:
    """Add one to the counter so many times, slowly if only the lock separates writers."""
    store = LocalStore(folder)
    rename = os.rename

    def slow_rename(*names: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        time.sleep(0.0005)
        rename(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    os.rename = slow_rename  # type: ignore[assignment]
    for _ in range(times):
        await increment(store)


async def increment_forever(folder: Path, _: int) -> None:
    """Add one to the counter again and again, and print each result."""
    store = LocalStore(folder)
    while True:
        say(await increment(store))


async def die_at_call(folder: Path, number: int) -> None:
    """Add one to the counter, but be killed before the n-th system call of the write.

    Bodies are written in two halves, so that some of these deaths leave a torn file, and that the
    number of calls does not depend on their size.
    """
    store = LocalStore(folder)
    stored = await store.get(KEY)
    calls = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    write, halves = os.write, iter([2])

    def write_half(file: int, data: memoryview) -> int:
        return write(file, data[: len(data) // next(halves, 1)])

    os.write = write_half  # type: ignore[assignment]
    for name in SYSTEM_CALLS:
        setattr(os, name, counted(getattr(os, name)))
    fcntl.flock = counted(fcntl.flock)
    fcntl.fcntl = counted(fcntl.fcntl)
    await store.replace(KEY, counter_body(counter_value(stored.body) + 1), stored.etag)
    say("survived")


async def stop_while_syncing(folder: Path, _: int) -> None:
    """Set the counter, but be stopped while the temporary file is synced."""
    await _stop_before(folder, "fdatasync")


async def stop_while_renaming(folder: Path, _: int) -> None:
    """Set the counter, but be stopped when it has been compared, and before the rename."""
    await _stop_before(folder, "rename")


async def _stop_before(folder: Path, call_name: str) -> None:
    store = LocalStore(folder)
    stored = await store.get(KEY)
    call = getattr(os, call_name)

    def stopping_call(*args: Any, **kwargs: Any) -> None:
        # To this thread: sent to the process, it would let this one run on for a while.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        call(*args, **kwargs)

    setattr(os, call_name, stopping_call)
    try:
        await store.replace(KEY, counter_body(1_000_000), stored.etag)
    except PreconditionFailedError:
        say("refused")


async def read_slowly(folder: Path, times: int) -> None:
    """Read the counter as any program would, in pieces and with pauses; print what is torn."""
    for _ in range(times):
        body = b""
        with (folder / KEY).open("rb", buffering=0) as file:
            while piece := file.read(4000):
                body += piece
                await asyncio.sleep(0.001)
        try:
            counter_value(body)
        except (ValueError, AssertionError):
            say("torn")


COMMANDS = {
    command.__name__: command
    for command in (
        *(increment_times, increment_forever, die_at_call, read_slowly),
        *(stop_while_syncing, stop_while_renaming),
    )
}


def main() -> None:
    for line in sys.stdin:
        command, folder, number = line.split()
        pid = os.fork()
        if pid == 0:
            say(os.getpid())
            asyncio.run(COMMANDS[command](Path(folder), int(number)))
            os._exit(0)
        while os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
            say("stopped")
        say("ended")


if __name__ == "__main__":
    main()
