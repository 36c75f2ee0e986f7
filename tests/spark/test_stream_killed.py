"""Streams whose driver, JVM or executor is killed: nothing lost, and no batch changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import bucketq
from bucketq import JobSpec
from tests.spark import stream_program

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 150.0
JOBS = 10


class Run:
    """A queue with jobs, and a program that streams them, over and over."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self._environ = environ
        self.url = (folder / "queue.json").as_uri()
        with bucketq.connect_sync(self.url, mode="direct") as queue:
            queue.config(archive_after_s=3600)  # So that done jobs can be counted.
            self.jobs = queue.push_many([JobSpec(kind="x", payload=n) for n in range(JOBS)])

    @contextmanager
    def started(self, trigger: str, master: str = "local[2]") -> Iterator[subprocess.Popen[bytes]]:
        """Start the program, and kill it in the end, with its JVM."""
        with (self.folder / "output").open("ab") as output:
            program = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.stream_program"),
                    *(master, self.url, str(self.folder), trigger),
                ],
                cwd=ROOT,
                env=os.environ | self._environ,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield program
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()

    def kill_when(self, happened: Callable[[], object]) -> None:
        """Start the program, which would run for hours, and kill it after something."""
        deadline = time.monotonic() + DEADLINE_S
        with self.started("1 hour") as program:
            while not happened():
                assert program.poll() is None, self.output()
                assert time.monotonic() < deadline, self.output()
                time.sleep(0.05)

    def output(self) -> str:
        """What the program said last."""
        return (self.folder / "output").read_text()[-3000:]

    def batches(self) -> list[tuple[int, list[str]]]:
        log = self.folder / "batches"
        lines = log.read_text().splitlines() if log.exists() else []
        return [(number, ids) for number, ids in map(json.loads, lines)]

    def counts(self) -> tuple[int, int]:
        """How many jobs are running, and how many done."""
        with bucketq.connect_sync(self.url, mode="direct") as queue:
            stats = queue.stats()
        return stats.total("running"), stats.total("done")


@pytest.fixture
def run(tmp_path: Path, spark_environ: dict[str, str]) -> Run:
    return Run(tmp_path, spark_environ)


@pytest.mark.timeout(600)
def test_a_driver_and_its_jvm_may_be_killed_at_any_point(spark: SparkSession, run: Run) -> None:
    run.kill_when(lambda: run.counts() == (4, 0))  # Spark has hardly written that down.
    assert run.counts() == (4, 0)
    # Spark may refuse a checkpoint that was left half made. Without it nothing is lost.
    shutil.rmtree(run.folder / "checkpoint", ignore_errors=True)

    (run.folder / "hold").touch()
    run.kill_when(lambda: len(run.batches()) == 1)  # In the midst of the batch.
    assert run.counts() == (4, 0)
    (run.folder / "hold").unlink()

    run.kill_when((run.folder / "checkpoint" / "commits" / "0").exists)  # And nothing came next.
    assert [number for number, _ in run.batches()] == [0, 0]
    assert run.counts() == (4, 0)

    query = stream_program.start(spark, run.url, run.folder, "now")
    assert query.awaitTermination(int(DEADLINE_S))
    assert [number for number, _ in run.batches()] == [0, 0, 1, 2]
    sets: dict[int, list[str]] = {}
    for number, ids in run.batches():
        assert sets.setdefault(number, ids) == ids, f"batch {number} has changed"
    assert sorted(job for ids in sets.values() for job in ids) == sorted(run.jobs)
    assert run.counts() == (0, JOBS)


@pytest.mark.timeout(300)
def test_an_executor_may_be_killed_while_it_reads_a_batch(run: Run) -> None:
    (run.folder / "kill").touch()
    with run.started("now", "local-cluster[2,1,1024]") as program:
        assert program.wait(DEADLINE_S * 1.5) == 0, run.output()
    assert (run.folder / "killed").exists(), "no executor was killed, so this shows nothing"
    batches = run.batches()
    assert [number for number, _ in batches] == [0, 1, 2]
    assert sorted(job for _, ids in batches for job in ids) == sorted(run.jobs)
    assert run.counts() == (0, JOBS)
