"""A worker with handlers of every sort, for tests that end it in every way.

``python -m tests.integration.worker_program URL MODE LOG`` works until it is told to stop. What its
handlers do is written to the log, a line at a time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import cast

import bucketq
from bucketq import Context, Job
from bucketq.client.connect_arguments import Mode

LOG_VARIABLE = "BUCKETQ_TEST_LOG"
worker = bucketq.Worker(concurrency=2, drain_s=600)  # Longer than a test.


def note(*words: object) -> None:
    """Add a line to the log, whole."""
    log = os.open(os.environ[LOG_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, (" ".join(map(str, words)) + "\n").encode())
    os.close(log)


@worker.handler("hold")
async def hold(seconds: float, context: Context) -> int:
    note("hold", os.getpid(), context.attempt)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("stopped", context.attempt)
        raise
    return os.getpid()


@worker.handler("thread")
def thread(seconds: float) -> None:
    note("thread", os.getpid())
    time.sleep(seconds)


@worker.handler("process", run_in="process")
def process(seconds: float) -> str:
    note("process", os.getpid())
    time.sleep(seconds)
    return "not disturbed"


@worker.handler("family", run_in="process")
def family(seconds: float) -> None:
    """Run a program, in the process of the handler."""
    program = subprocess.Popen(["sleep", str(seconds)])
    note("family", os.getpid(), program.pid)
    program.wait()


@worker.handler("block")
async def block(seconds: float) -> str:
    note("block", os.getpid())
    time.sleep(seconds)  # noqa: ASYNC251 - it does what it should not
    return "done at last"


@worker.handler("chain")
async def chain(left: int, job: Job[int]) -> int:
    """Push what comes next, by a queue of its own on the loop of the handlers."""
    if left:
        url, mode = sys.argv[1], cast("Mode", sys.argv[2])
        async with bucketq.connect(url, mode=mode) as queue:
            await queue.push("chain", left - 1, key=f"after {job.id}")
    return left


if __name__ == "__main__":
    os.environ[LOG_VARIABLE] = sys.argv[3]
    worker.configure(sys.argv[1], mode=cast("Mode", sys.argv[2]))
    worker.run_sync()
