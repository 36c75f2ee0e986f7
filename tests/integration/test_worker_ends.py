"""A worker that gets SIGTERM is gone within its drain time, whatever its handlers and storage do.

Times are compared with the drain time, and leave room for a machine that is busy.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import bucketq
from bucketq import JobSpec
from tests.environ import ROOT
from tests.integration.test_workers import ENVIRONMENT, until

DRAIN_S = 3.0
ROOM = 5.0
"""How many times as long a busy machine may take; without a limit it is 60 s and more."""


class Ending:
    """A queue in a file, and one worker in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.url = (folder / "queue.json").as_uri()
        self._log = folder / "log"
        self._errors = folder / "errors"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env={**ENVIRONMENT, "BUCKETQ_TEST_LOG": str(self._log), "BUCKETQ_URL": self.url},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def start_program(self, write_s: float = 0.0) -> None:
        program = "tests.integration.ending_program"
        self.start(program, self.url, str(self._log), str(DRAIN_S), str(write_s))

    def until_noted(self, word: str, count: int = 1) -> None:
        until(lambda: self._is_over() or self._count(word) >= count, 60)
        assert not self._is_over(), self._errors.read_text()

    def terminate(self) -> tuple[int, float]:
        """Send SIGTERM; return the exit code, and how long that took in drain times."""
        assert self.process is not None
        began_s = time.monotonic()
        os.kill(self.process.pid, signal.SIGTERM)
        code = self.process.wait(120)
        return code, (time.monotonic() - began_s) / DRAIN_S

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)

    def errors(self) -> str:
        return self._errors.read_text()

    def _is_over(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def _count(self, word: str) -> int:
        text = self._log.read_text() if self._log.exists() else ""
        return text.split().count(word)


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Ending]:
    one = Ending(tmp_path)
    yield one
    one.close()


def test_jobs_that_were_fetched_ahead_go_back_in_time_where_writes_are_slow(
    ending: Ending,
) -> None:
    """One commit for each of them would take a minute, at 0.2 s for a write."""
    with bucketq.connect_sync(ending.url, mode="direct") as queue:
        queue.configure(archive_after_s=3600, spill_bytes=16 << 20, lease_s=60.0)
        queue.push_many([JobSpec(kind="quick", payload=None) for _ in range(3000)])
        ending.start_program(write_s=0.2)
        until(lambda: queue.stats().counts["quick"].get("running", 0) > 100, 60)
        code, took = ending.terminate()
        counts = queue.stats().counts["quick"]
        assert (code, "running" in counts) == (0, False), (counts, ending.errors())
        assert counts["queued"] > 0
        assert took < ROOM
        assert {job.lost_leases for job in queue.jobs(limit=3000).jobs} == {0}


CAUSES = {
    "block": "blocks the event loop",
    "native": "blocks the event loop",
    "stubborn": "go on although they were cancelled: job ",
    "executor": "threads have not ended: ",
}
"""What a worker reports, by the kind of its handler that does not stop."""


@pytest.fixture(scope="module")
def ended(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[Ending, tuple[int, float]]]]:
    """Workers of each kind, and their exit codes and times; stopped at once, as each takes long."""
    with ExitStack() as stack, ThreadPoolExecutor(len(CAUSES)) as threads:
        started = {kind: Ending(tmp_path_factory.mktemp(kind)) for kind in CAUSES}
        for kind, one in started.items():
            stack.enter_context(closing(one))
            with bucketq.connect_sync(one.url, mode="direct") as queue:
                queue.push(kind, None, id="job")
            one.start_program()
        for kind, one in started.items():
            one.until_noted(kind)
        ends = list(threads.map(Ending.terminate, started.values()))
        yield {kind: (started[kind], end) for kind, end in zip(started, ends, strict=True)}


@pytest.mark.parametrize("kind", CAUSES)
def test_a_handler_that_does_not_stop_does_not_keep_the_process(
    ended: dict[str, tuple[Ending, tuple[int, float]]], kind: str
) -> None:
    ending, (code, took) = ended[kind]
    assert code == 1
    assert "drain time is over" in ending.errors()
    assert CAUSES[kind] in ending.errors()
    assert took < ROOM
    with bucketq.connect_sync(ending.url, mode="direct") as queue:
        job = queue.get("job")
    assert (job.status, job.failures, job.lost_leases) == ("queued", 0, 0)


def test_a_thread_that_does_not_end_does_not_keep_the_command(ending: Ending) -> None:
    with bucketq.connect_sync(ending.url, mode="direct") as queue:
        job_id = queue.push("thread", None)
        ending.start(
            *("bucketq.cli", "work", "tests/integration/ending_program.py:worker"),
            *("--drain", f"{DRAIN_S:g}s"),
        )
        ending.until_noted("thread")
        until(lambda: queue.get(job_id).status == "done")
        code, took = ending.terminate()
        assert code == 1
        assert took < ROOM


def test_a_claim_without_an_answer_does_not_keep_the_process(ending: Ending) -> None:
    with bucketq.connect_sync(ending.url, mode="direct") as queue:
        queue.push("quick", None)
    ending.start_program(write_s=300.0)
    ending.until_noted("write")
    code, took = ending.terminate()
    assert code == 0
    assert took < ROOM
