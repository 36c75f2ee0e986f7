"""A driver is killed with its JVM at each step of streams: of jobs, of the archive, of settling."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import JobSpec
from tests.spark.clusters import EXECUTORS, start_standalone
from tests.spark.features import records
from tests.spark.finished_jobs import archive, finished, hours_ago
from tests.spark.spark_home import ROOT
from tests.spark.step_program import ARCHIVE_STEPS, JOB_STEPS, SETTLE_STEPS
from tests.spark.stream_program import batches

JOBS = 12
HERE = "local[2]"
pytestmark = [pytest.mark.timeout(900), pytest.mark.full]


def run(folder: Path, what: str, step: str, master: str, environ: dict[str, str]) -> int:
    """Run the program; return how it ended."""
    with (folder / "output").open("ab") as output:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.step_program", str(folder), what, step, master],
            cwd=ROOT,
            env=os.environ | environ,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return program.wait(timeout=400)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def run_twice(folder: Path, what: str, step: str, master: str, environ: dict[str, str]) -> None:
    """Let the program die at a step, and run it again to its end."""
    ended = [run(folder, what, step, master, environ) for _ in range(2)]
    assert (folder / "died").exists(), (folder / "output").read_text()[-3000:]
    assert ended == [-signal.SIGKILL, 0], (folder / "output").read_text()[-3000:]


def sets(folder: Path) -> dict[int, list[list[str]]]:
    """Return what each batch had, each time that it was begun."""
    found: dict[int, list[list[str]]] = {}
    for number, ids in batches(folder):
        found.setdefault(number, []).append(ids)
    return found


def place(step: str, master: str) -> Any:
    return pytest.param(step, master, id=f"{step}-{master.partition('[')[0]}")


@pytest.mark.parametrize(
    ("step", "master"),
    [
        *(place(step, HERE) for step in ARCHIVE_STEPS),
        *(place(step, EXECUTORS) for step in ("read", "noted")),
    ],
)
def test_a_stream_of_finished_jobs_has_each_once(
    tmp_path: Path, spark_environ: dict[str, str], step: str, master: str
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct"):
        pass
    jobs = [finished(f"job{number:02d}", hours_ago(3 + number % 4)) for number in range(JOBS)]
    archive(url, jobs[:8], jobs[4:])
    run_twice(tmp_path, "archive", step, master, spark_environ)
    found = sets(tmp_path)
    assert all(each == tries[0] for tries in found.values() for each in tries), found
    once = [name for tries in found.values() for name in tries[0]]
    assert sorted(once) == sorted(job.id for job in jobs)


STANDALONE = "standalone"
STORED = "stored"


@pytest.mark.parametrize(
    ("step", "where"),
    [
        *((step, HERE) for step in JOB_STEPS),
        *((step, STORED) for step in ("prepared", "offset", "claimed", "noted")),
        *((step, STANDALONE) for step in ("prepared", "offset", "claimed", "read")),
    ],
)
def test_a_stream_of_jobs_has_each_once(
    tmp_path: Path,
    spark_environ: dict[str, str],
    store_url: Callable[[], str],
    step: str,
    where: str,
) -> None:
    url = store_url() if where == STORED else (tmp_path / "queue.json").as_uri()
    (tmp_path / "url").write_text(url)
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(archive_after_s=3600)
        ids = queue.push_many([JobSpec(kind="x", payload=number) for number in range(JOBS)])
    with ExitStack() as stack:
        master = HERE
        if where == STANDALONE:
            master = start_standalone(stack, tmp_path, spark_environ)
        run_twice(tmp_path, "jobs", step, master, spark_environ)
    found = sets(tmp_path)
    assert all(each == tries[0] for tries in found.values() for each in tries), found
    assert sorted(found) == [1, 2, 3]
    assert len(found[2]) == (2 if step == "noted" else 1), "only what was noted is noted again"
    assert sorted(name for tries in found.values() for name in tries[0]) == sorted(ids)
    states = {(job.status, job.attempt, job.lost_leases) for job in records(url)}
    assert states == {("done", 1, 0)}


@pytest.mark.parametrize(
    ("step", "master"),
    [
        *(place(step, HERE) for step in SETTLE_STEPS),
        *(place(step, EXECUTORS) for step in ("half", "settled")),
    ],
)
def test_what_was_settled_stays_settled_and_the_rest_is_done_once(
    tmp_path: Path, spark_environ: dict[str, str], step: str, master: str
) -> None:
    url = (tmp_path / "queue.json").as_uri()
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(archive_after_s=3600)
        ids = queue.push_many([JobSpec(kind="x", payload=number) for number in range(JOBS)])
    run_twice(tmp_path, "settle", step, master, spark_environ)
    first = sets(tmp_path)[1]
    gone = {"begun": 0, "half": 1, "settled": 2, "committed": None}[step]
    if gone is None:
        assert len(first) == 1
    else:
        assert set(first[1]) == set(ids[gone:4]), "a job that was settled does not come again"
    found = {job.id: job for job in records(url)}
    assert {job.attempt for job in found.values()} == {1}
    for number, name in enumerate(ids):
        job = found[name]
        wanted = ("dead", 1) if number % 4 == 0 else ("done", 0)
        assert (job.status, job.failures) == wanted, (number, job)
        if number % 4 == 1:
            assert bytes(job.result) == str(number).encode()
