"""Runs programs on a deep queue that kill themselves, and judges what they leave behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from bucketq.archive.archive_layout import Layout
from bucketq.archive.reader import ArchiveReader
from bucketq.clock import SystemClock
from bucketq.codec.decode import decode
from bucketq.commit.objects.queue_history import QueueHistory
from bucketq.queue.queue import Queue
from bucketq.store.base import ObjectStore
from bucketq.store.url import open_store
from simulator.invariants.segment_invariants import segment_key
from simulator.whole_queue import WholeReader
from tests.environ import ROOT
from tests.integration.deep_program import POLICY, SETTINGS, open_deep
from tests.integration.test_processes import ENVIRONMENT, is_alive, wait_until

PROGRAM = [sys.executable, "-m", "tests.integration.deep_program"]
PATIENCE_S = 60.0
WHENS = ("before", "after", "during")


class DeepLives:
    """Programs on one deep queue, two at a time, of which each kills itself."""

    program: Sequence[str] = PROGRAM
    settings: Mapping[str, Any] = SETTINGS
    whens: Sequence[str] = WHENS

    def __init__(self, url: str, folder: Path, seed: int = 7) -> None:
        self.url = url
        self._folder = folder
        self._rng = random.Random(seed)

    async def run(self, pairs: int) -> None:
        """Create the queue, and run pairs of programs, one pair after the other."""
        location = open_store(self.url)
        queue, _ = open_deep(location.store, location.key, self.url, "direct")
        async with queue:
            await queue.configure(**self.settings)
        await location.store.close()
        await asyncio.to_thread(self._run, pairs)

    def _run(self, pairs: int) -> None:
        with self.programs() as start:
            for pair in range(pairs):
                alive = list[int]()
                for mode in ("embedded", self._rng.choice(("embedded", "direct"))):
                    log = self._folder / f"log-{pair}-{len(alive)}"
                    steps, when = self._rng.randint(2, 30), self._rng.choice(self.whens)
                    alive.append(start(f"{self.url} {mode} {log} {steps} {when}"))
                wait_until(partial(_are_gone, alive), PATIENCE_S)

    @contextmanager
    def programs(self) -> Iterator[Callable[[str], int]]:
        """Start programs, of which none outlives the block: a line for each; returns its id."""
        environ = {**ENVIRONMENT, **os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
        with subprocess.Popen(
            self.program,
            cwd=ROOT,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            stdin, stdout, pids = process.stdin, process.stdout, list[int]()

            def start(line: str) -> int:
                stdin.write(f"{line}\n")
                stdin.flush()
                pids.append(int(stdout.readline()))
                return pids[-1]

            try:
                yield start
            finally:
                for pid in filter(is_alive, pids[-2:]):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                process.stdin.close()

    def logged(self, word: str) -> list[str]:
        """Return what all programs logged under a word."""
        return [
            token
            for log in sorted(self._folder.glob("log-*"))
            for line in log.read_text().splitlines()
            for token in line.split()[1:]
            if line.split()[0] == word
        ]

    async def judge(self) -> None:
        """Check that nothing is lost or doubled, and that sweeps leave no orphan."""
        location = open_store(self.url)
        store, key = location.store, location.key
        queue, _ = open_deep(store, key, self.url, "embedded")
        async with queue:
            for number in range(2 * POLICY.least_versions):
                await queue.configure(max_attempts=100 + number % 2)
            await until_swept(store, key)
            await queue.flush_archive()
            await judge_history(queue)
        await judge(store, key, self.logged("pushed"), self.logged("completed"))
        await store.close()


def _are_gone(pids: Sequence[int]) -> bool:
    return not any(map(is_alive, pids))


async def until_swept(store: ObjectStore, key: str) -> None:
    """Wait until no segment is left that the queue cannot name."""
    for _ in range(200):
        head = decode((await store.get(key)).body, key).state
        names = [info.key async for info in store.list(segment_key(key, head.incarnation, ""))]
        ids = [name.rpartition("/")[2].removesuffix(".jsonl") for name in names]
        history = QueueHistory(store, key, SystemClock())
        named = (await history.named_by(head)).ids
        left = [each for each in ids if each not in named and int(each[:20]) <= head.version]
        if not left:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(left)


async def judge_history(queue: Queue[str]) -> None:
    """Check that the history has every version once, and that it leads to the queue as it is."""
    changes = [change async for change in queue.changes(follow=False)]
    first = changes[0].version
    assert [change.version for change in changes] == [*range(first, first + len(changes))]
    newest = await queue.snapshot()
    past = await queue.snapshot(version=newest.version)
    assert past.jobs == tuple(replace(job, lease=None) for job in newest.jobs)
    assert past.settings == newest.settings


async def judge(store: ObjectStore, key: str, pushed: list[str], completed: list[str]) -> None:
    """Check the queue and its archive against what was acknowledged; no process uses them now."""
    body = (await store.get(key)).body
    head = decode(body, key).state
    segments = {
        name: (await store.get(segment_key(key, head.incarnation, name))).body
        for name in head.cold.rows.names()
    }
    queue = WholeReader(lambda _, name: segments[name]).whole(body, key)
    assert not queue.doubled
    assert not WholeReader(lambda _, name: segments[name]).compare(queue, datetime.now(UTC))
    reader, now = ArchiveReader(store, Layout.of(store.url, key)), datetime.now(UTC)
    hour = timedelta(hours=1)
    archived = [_token(job) async for job in reader.jobs(now - hour, now + hour)]
    places = Counter([*archived, *map(_token, queue.whole.jobs)])
    assert not [token for token, count in places.items() if count > 1]
    assert set(pushed) <= set(places), "an acknowledged push is lost"
    assert set(completed) <= set(archived), "an acknowledged completion is lost"


def _token(job: Any) -> str:
    return msgspec.json.decode(bytes(job.payload), type=str)
