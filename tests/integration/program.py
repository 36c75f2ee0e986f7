"""Programs that use one queue, for tests that run many of them and end them without warning.

``python -m tests.integration.program`` reads lines ``COMMAND URL MODE LOG`` from its standard input
and forks a process for each, so that fifty of them import what they need only once. The answer
to each line is the process id.

Each program writes what it has been promised to its log, a line at a time, so that whatever
happens to it, the lines that are there are true.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

import bucketq
from bucketq import JobSpec
from bucketq.client.connect_arguments import Mode
from bucketq.store import local  # noqa: F401 - it is loaded late, and once is enough


class Log:
    """A file to which whole lines are added."""

    def __init__(self, path: str) -> None:
        self.name = Path(path).name
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


async def produce_four(url: str, mode: Mode, log: Log) -> None:
    """Push four jobs and end."""
    async with bucketq.connect(url, mode=mode) as queue:
        for number in range(4):
            payload = f"{log.name}-{number}"
            log.write("pushed", await queue.push("mail", payload), payload)


async def produce_forever(url: str, mode: Mode, log: Log) -> None:
    """Push jobs, one by one and by twos, until somebody ends it."""
    async with bucketq.connect(url, mode=mode) as queue:
        number = 0
        while True:
            payloads = [f"{log.name}-{number + more}" for more in range(1 + number % 2)]
            number += len(payloads)
            jobs = [JobSpec(kind="mail", payload=payload) for payload in payloads]
            for job_id, payload in zip(await queue.push_many(jobs), payloads, strict=True):
                log.write("pushed", job_id, payload)


async def work(url: str, mode: Mode, log: Log) -> None:
    """Claim and complete jobs until somebody ends it."""
    async with bucketq.connect(url, mode=mode, worker=log.name) as queue:
        while True:
            for job in await queue.claim(limit=2, wait_s=1):
                log.write("claimed", job.id, job.attempt)
                try:
                    await queue.complete(job, log.name)
                except bucketq.LeaseLostError:
                    log.write("lost", job.id, job.attempt)
                else:
                    log.write("completed", job.id, job.attempt)


def push_until_interrupted(url: str, mode: Mode, log: Log) -> None:
    """Push threes with the blocking face until Ctrl-C."""
    try:
        with bucketq.connect_sync(url, mode=mode) as queue:
            log.write("open")
            for number in range(1_000_000):
                payloads = [f"{log.name}-{number}-{more}" for more in range(3)]
                jobs = [JobSpec(kind="mail", payload=payload) for payload in payloads]
                log.write("pushed", *queue.push_many(jobs), number)
    except KeyboardInterrupt:
        log.write("interrupted")


ASYNC = {command.__name__: command for command in (produce_four, produce_forever, work)}
BLOCKING: dict[str, Callable[[str, Mode, Log], None]] = {
    push_until_interrupted.__name__: push_until_interrupted
}


def run(command: str, url: str, mode: str, log: str) -> None:
    if command in ASYNC:
        asyncio.run(ASYNC[command](url, cast("Mode", mode), Log(log)))
    else:
        BLOCKING[command](url, cast("Mode", mode), Log(log))


def fork_for_each_line(run: Callable[..., None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Whoever ends is gone at once.
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                run(*line.split())
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    fork_for_each_line(run)
