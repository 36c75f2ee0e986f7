"""Streams whose driver is killed with its JVM: nothing lost, nothing doubled, no batch changed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import bucketq
from bucketq import JobSpec
from tests.spark import stream_program
from tests.spark.executor_losses import payloads, staged
from tests.spark.features import fresh, records, statuses
from tests.spark.spark_home import ROOT
from tests.spark.stream_program import A_BATCH, DEADLINE_S

NOTED, COPIED = 10, 18
LARGE = "x" * 300_000
"""So that a batch does not travel to the driver with Spark's messages."""


class Run:
    """Queues with jobs, and a program that streams them, over and over."""

    def __init__(self, folder: Path, environ: dict[str, str], store: Callable[[], str]) -> None:
        self.folder = folder
        self._environ = environ
        self.url = fresh(folder, *(JobSpec(kind="x", payload=n) for n in range(NOTED)))
        self.jobs = sorted(job.id for job in records(self.url))
        self.source, self.sink = store(), store()
        with bucketq.connect_sync(self.source, mode="direct") as queue:
            queue.configure(archive_after_s=3600)
            queue.push_many(
                [JobSpec(kind="x", payload={"n": n, "text": LARGE}) for n in range(COPIED)]
            )
        queues = {"noted": self.url, "source": self.source, "sink": self.sink}
        (folder / "queues.json").write_text(json.dumps(queues))

    def kill_when(self, happened: Callable[[], object], copies: int = 0) -> None:
        """Start the program and kill it after something.

        With ``copies``, also not before the other stream has pushed so many, and then at once:
        Spark has hardly had the time to write that down.
        """
        with (self.folder / "output").open("ab") as output:
            program = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.stream_program"),
                    *(str(self.folder), "1 hour"),
                ],
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
        """What the program said last."""
        return (self.folder / "output").read_text()[-3000:]

    def pushed(self) -> int:
        """How many jobs have been copied."""
        with bucketq.connect_sync(self.sink, mode="direct") as queue:
            return queue.stats().total("queued")


@pytest.fixture
def run(tmp_path: Path, spark_environ: dict[str, str], store_url: Callable[[], str]) -> Run:
    return Run(tmp_path, spark_environ, store_url)


@pytest.mark.timeout(900)
def test_a_driver_and_its_jvm_may_be_killed_at_any_point(spark: SparkSession, run: Run) -> None:
    run.kill_when(lambda: statuses(run.url).get("running"))  # Spark has hardly written that down.
    assert statuses(run.url) == {"running": 4, "queued": 6}
    # Spark may refuse a checkpoint that was left half made. Without it nothing is lost.
    for checkpoint in ("checkpoint", "checkpoint-copy"):
        shutil.rmtree(run.folder / checkpoint, ignore_errors=True)

    (run.folder / "hold").touch()
    run.kill_when(lambda: len(noted(run)) == 1, copies=4)  # In the midst of the batch.
    assert statuses(run.url) == {"running": 4, "queued": 6}
    (run.folder / "hold").unlink()

    # And nothing came next.
    run.kill_when((run.folder / "checkpoint" / "commits" / "0").exists, copies=8)
    assert noted(run) == [0, 0]
    assert statuses(run.url) == {"running": 4, "queued": 6}

    (run.folder / "hold").touch()
    run.kill_when(lambda: len(noted(run)) == 3, copies=12)  # In the midst of a later batch.
    assert statuses(run.url) == {"done": 4, "running": 4, "queued": 2}
    (run.folder / "hold").unlink()

    for number in range(COPIED // A_BATCH + 1):
        (run.folder / f"pass-{number}").touch()
    copy = stream_program.start_copy(spark, run.source, run.sink, run.folder, "now")
    query = stream_program.start(spark, run.url, run.folder, "now")
    assert query.awaitTermination(DEADLINE_S)
    assert copy.awaitTermination(DEADLINE_S)
    assert noted(run) == [0, 0, 1, 1, 2]
    sets: dict[int, list[str]] = {}
    for number, ids in stream_program.batches(run.folder):
        assert sets.setdefault(number, ids) == ids, f"batch {number} has changed"
    assert sorted(job for ids in sets.values() for job in ids) == run.jobs
    assert statuses(run.url) == {"done": NOTED}
    assert_copied_once(run)


def noted(run: Run) -> list[int]:
    return [number for number, _ in stream_program.batches(run.folder)]


async def archived(url: str) -> list[str]:
    async with bucketq.open_archive(url) as archive:
        since = datetime.now(UTC) - timedelta(hours=9)
        return [job.id async for job in archive.jobs(since=since)]


def assert_copied_once(run: Run) -> None:
    copies: list[Any] = payloads(run.sink)
    assert sorted(copy["n"] for copy in copies) == list(range(COPIED))
    with bucketq.connect_sync(run.source, mode="direct") as queue:
        queue.flush_archive()  # Large jobs leave early, so some are in the archive already.
    assert statuses(run.source) == {}
    assert len(asyncio.run(archived(run.source))) == COPIED
    assert staged(run.sink) == []
