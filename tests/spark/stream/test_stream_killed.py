"""A driver of streams is killed with its JVM: no job is lost or repeated, no batch changes.

Every run kills it once, with three streams at three points: inside a batch, after the commit of a
batch, and after a push to an object store. A full run kills it at more points, one after another.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import bucketq
from bucketq import JobSpec
from tests.spark import stream_program
from tests.spark.executor_losses import payloads, staged
from tests.spark.features import fresh, records, statuses
from tests.spark.spark_home import ROOT
from tests.spark.stream_program import A_BATCH, DEADLINE_S

FULL_SIZES = (10, 14)
"""Jobs that each stream notes, and jobs that are copied: kills in three batches, and one more."""
SIZES = (6, 6)
"""For one kill: the batch that is interrupted, and one after it, which has fewer jobs."""
LARGE = "x" * 300_000
"""Batches this large are staged beside the queue, and not sent with Spark's messages."""


class Run:
    """Queues with jobs, and a program that streams them, run again after each kill."""

    def __init__(
        self,
        folder: Path,
        environ: dict[str, str],
        store: Callable[[], str],
        sizes: tuple[int, int],
    ) -> None:
        self.folder = folder
        noted, self.copied = sizes
        self._environ = environ
        self.held, self.committed = (
            Noted(folder / "held", noted),
            Noted(folder / "committed", noted),
        )
        self.source, self.sink = store(), store()
        with bucketq.connect_sync(self.source, mode="direct") as queue:
            queue.configure(archive_after_s=3600, spill_bytes=16 << 20)
            queue.push_many(
                [JobSpec(kind="x", payload={"n": n, "text": LARGE}) for n in range(self.copied)]
            )
        urls = {str(each.folder): each.url for each in (self.held, self.committed)}
        queues = {"noted": urls, "source": self.source, "sink": self.sink}
        (folder / "queues.json").write_text(json.dumps(queues))

    def kill_when(self, happened: Callable[[], object], copies: int = 0) -> None:
        """Start the program, wait for an event, and kill the program with its JVM.

        With ``copies``, it is killed as soon as that many jobs were pushed: Spark has hardly had
        the time to commit their batch.
        """
        with (self.folder / "output").open("ab") as output:
            program = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.stream_program", str(self.folder)],
                cwd=ROOT,
                env=os.environ | self._environ,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait(program, happened)
            if copies:
                (self.folder / f"pass-{copies // A_BATCH - 1}").touch()
                self._wait(program, lambda: self.pushed() == copies)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()

    def _wait(self, program: subprocess.Popen[bytes], happened: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not happened():
            assert program.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def output(self) -> str:
        """Return the end of what the program printed."""
        return (self.folder / "output").read_text()[-3000:]

    def pushed(self) -> int:
        """Return how many jobs have been copied."""
        with bucketq.connect_sync(self.sink, mode="direct") as queue:
            return queue.stats().total("queued")


class Noted:
    """A queue, and the folder of the stream that notes its batches."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir()
        self.folder = folder
        self.url = fresh(folder, *(JobSpec(kind="x", payload=n) for n in range(count)))
        self.jobs = sorted(job.id for job in records(self.url))

    @property
    def batches(self) -> list[int]:
        """The numbers of the batches that were begun, in order."""
        return [number for number, _ in stream_program.batches(self.folder)]

    def has_committed(self, batch: int) -> bool:
        return (self.folder / "checkpoint" / "commits" / str(batch)).exists()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the stream inside its next batch."""
        (self.folder / "hold").touch()
        yield
        (self.folder / "hold").unlink()

    def assert_done_once(self) -> None:
        sets: dict[int, list[str]] = {}
        for number, ids in stream_program.batches(self.folder):
            assert sets.setdefault(number, ids) == ids, f"batch {number} has changed"
        assert sorted(job for ids in sets.values() for job in ids) == self.jobs
        assert statuses(self.url) == {"done": len(self.jobs)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.full)])
def test_a_driver_and_its_jvm_may_be_killed_at_any_point(
    spark: SparkSession,
    tmp_path: Path,
    spark_environ: dict[str, str],
    store_url: Callable[[], str],
    kills: int,
) -> None:
    sizes = SIZES if kills == 1 else FULL_SIZES
    run = Run(tmp_path, spark_environ, store_url, sizes)
    held, committed = run.held, run.committed
    if kills > 1:
        kill_after_a_claim(run)
    with held.hold():
        # One stream is inside a batch, one has committed a batch, and one has pushed a batch.
        run.kill_when(lambda: held.batches == [0] and committed.has_committed(0), copies=4)
    for stream in (held, committed):
        assert statuses(stream.url) == {"running": A_BATCH, "queued": sizes[0] - A_BATCH}
    if kills > 1:
        kill_in_later_batches(run)

    for number in range(run.copied // A_BATCH + 1):
        (run.folder / f"pass-{number}").touch()
    # One after the other: each starts Python processes, for which Spark waits ten seconds only.
    finish(stream_program.start_copy(spark, run.source, run.sink, run.folder, "now"))
    for stream in (held, committed):
        finish(stream_program.start(spark, stream.url, stream.folder, "now"))
    assert held.batches == ([0, 0, 1] if kills == 1 else [0, 0, 1, 1, 2])
    assert committed.batches == ([0, 1] if kills == 1 else [0, 1, 2])
    held.assert_done_once()
    committed.assert_done_once()
    assert_copied_once(run)


def finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(DEADLINE_S), (query.status, query.lastProgress)


def kill_after_a_claim(run: Run) -> None:
    run.kill_when(lambda: statuses(run.held.url).get("running"))
    assert statuses(run.held.url) == {"running": 4, "queued": 6}
    # Spark may reject a checkpoint that it had not written to its end. Without it nothing is lost.
    for checkpoint in list(run.folder.rglob("checkpoint*")):
        shutil.rmtree(checkpoint, ignore_errors=True)


def kill_in_later_batches(run: Run) -> None:
    held = run.held
    run.kill_when(lambda: held.has_committed(0), copies=8)
    assert held.batches == [0, 0]
    assert statuses(held.url) == {"running": 4, "queued": 6}
    with held.hold():
        run.kill_when(lambda: held.batches == [0, 0, 1], copies=12)
    assert statuses(held.url) == {"done": 4, "running": 4, "queued": 2}


async def archived(url: str) -> list[str]:
    async with bucketq.open_archive(url) as archive:
        since = datetime.now(UTC) - timedelta(hours=9)
        return [job.id async for job in archive.jobs(since=since)]


def assert_copied_once(run: Run) -> None:
    copies: list[Any] = payloads(run.sink)
    assert sorted(copy["n"] for copy in copies) == list(range(run.copied))
    with bucketq.connect_sync(run.source, mode="direct") as queue:
        queue.flush_archive()  # Large jobs leave early, so some are in the archive already.
    assert statuses(run.source) == {}
    assert len(asyncio.run(archived(run.source))) == run.copied
    assert staged(run.sink) == []
