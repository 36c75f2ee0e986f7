"""A worker that is hard to end: slow storage, and handlers that do not stop.

``python -m tests.integration.ending_program URL LOG DRAIN_S WRITE_S`` works until it is told to
stop. Every write to the queue takes ``WRITE_S`` longer than the file system needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import bucketq
from bucketq.store.local import LocalStore
from tests.integration.worker_program import LOG_VARIABLE, note

worker = bucketq.Worker(concurrency=4)


@worker.handler("quick")
async def quick() -> None:
    note("quick")
    await asyncio.sleep(0.01)


@worker.handler("block")
async def block() -> None:
    """Block the event loop."""
    note("block")
    while True:
        time.sleep(1)  # noqa: ASYNC251 - it does what it should not


@worker.handler("native")
async def native() -> None:
    """Block the event loop in native code, where Python handles no signals."""
    note("native")
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


@worker.handler("stubborn")
async def stubborn() -> None:
    """Ignore every cancellation."""
    note("stubborn")
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


@worker.handler("executor")
async def executor() -> None:
    """Wait for a thread of the loop, for which the end of the loop waits in turn."""
    await asyncio.gather(*(asyncio.to_thread(_never_end, "executor") for _ in range(64)))


@worker.handler("thread")
def thread() -> None:
    """Start a thread that the interpreter waits for before it exits."""
    threading.Thread(target=_never_end, args=("thread",), daemon=False).start()


def _never_end(word: str) -> None:
    note(word)
    while True:
        time.sleep(1)


def slow_down(write_s: float) -> None:
    """Let each write take longer."""
    for name in ("create", "replace"):
        write = getattr(LocalStore, name)

        async def slowly(*args: Any, _write: Any = write, **options: Any) -> Any:
            note("write")
            await asyncio.sleep(write_s)
            return await _write(*args, **options)

        setattr(LocalStore, name, slowly)


if __name__ == "__main__":
    url, log, drain_s, write_s = sys.argv[1:]
    os.environ[LOG_VARIABLE] = log
    slow_down(float(write_s))
    worker.configure(url, mode="direct", drain_s=float(drain_s))
    worker.run_sync()
