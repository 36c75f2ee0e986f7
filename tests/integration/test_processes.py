"""Real processes on one file: many at once, and ended at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

import bucketq
from bucketq import BlockingQueue
from bucketq.client.connect_arguments import Mode
from tests.environ import ROOT, child_path

PROGRAM = [sys.executable, "-m", "tests.integration.program"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": child_path(ROOT)}
MODES: list[Mode] = ["direct", "embedded"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory in memory where there is one: what is shown here is not the disk's doing."""
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="bucketq-test-") as name:
        yield Path(name)


def url_of(folder: Path) -> str:
    return (folder / "queue.json").as_uri()


def lines_of(folder: Path, first_word: str) -> list[list[str]]:
    """What all programs wrote to their logs under one word."""
    return [
        line.split()[1:]
        for log in sorted(folder.glob("log-*"))
        for line in log.read_text().splitlines()
        if line.split()[0] == first_word
    ]


class Nursery:
    """Starts programs, and ends each by its id."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[str] = process.stdin
        self._stdout: IO[str] = process.stdout
        self._folder = folder
        self._started = 0
        self.alive: dict[int, str] = {}

    def start(self, command: str, mode: Mode) -> int:
        """Start a program with a log of its own; return its process id."""
        self._started += 1
        log = self._folder / f"log-{self._started}"
        self._stdin.write(f"{command} {url_of(self._folder)} {mode} {log}\n")
        self._stdin.flush()
        pid = int(self._stdout.readline())
        self.alive[pid] = command
        return pid

    def log(self) -> Path:
        """Where the program that was started last writes."""
        return self._folder / f"log-{self._started}"

    def end(self, pid: int, how: signal.Signals = signal.SIGKILL, patience_s: float = 20) -> None:
        """End a program, and wait until it is gone."""
        del self.alive[pid]
        os.kill(pid, how)
        wait_until(lambda: not is_alive(pid), patience_s)

    def wait_for_all(self, patience_s: float) -> None:
        """Wait until all programs have ended by themselves."""
        wait_until(lambda: not any(map(is_alive, self.alive)), patience_s)
        self.alive.clear()

    def end_all(self) -> None:
        for pid in list(self.alive):
            with suppress(ProcessLookupError):
                self.end(pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(is_so: Callable[[], bool], patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.005)


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    with subprocess.Popen(
        PROGRAM,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        one = Nursery(process, folder)
        try:
            yield one
        finally:
            one.end_all()
            assert process.stdin is not None
            process.stdin.close()


def all_jobs(queue: BlockingQueue[str]) -> list[bucketq.Job[str]]:
    page = queue.jobs(limit=10_000)
    assert page.next_after is None
    return list(page.jobs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [20, pytest.param(50, marks=pytest.mark.full)])
def test_many_producers_at_once_all_succeed(folder: Path, mode: Mode, count: int) -> None:
    with nursery(folder) as programs:
        for _ in range(count):
            programs.start("produce_four", mode)
        programs.wait_for_all(patience_s=50)
    promised = dict(lines_of(folder, "pushed"))
    assert len(promised) == 4 * count
    with bucketq.connect_sync(url_of(folder)) as queue:
        jobs = all_jobs(queue)
    assert {job.id: job.payload for job in jobs} == promised
    assert len(jobs) == 4 * count
    # What one producer pushed is in the order of its pushes.
    for number in range(1, count + 1):
        own = [job.payload for job in jobs if job.payload.startswith(f"log-{number}-")]
        assert own == [f"log-{number}-{count}" for count in range(4)]


def test_processes_killed_at_random_moments_lose_nothing_and_double_nothing(folder: Path) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    with bucketq.connect_sync(url_of(folder)) as queue:
        queue.configure(
            lease_s=1.0, heartbeat_s=0.3, grace_s=0.5, clock_margin_s=1.0, max_attempts=1000
        )
        # What is done is to be counted in one place.
        queue.configure(archive_after_s=3600, spill_bytes=16 << 20)
        with nursery(folder) as programs:
            for command in ("produce_forever", "produce_forever", "work", "work"):
                programs.start(command, chance.choice(MODES))
            killed, pause_s = 4, 0.1
            # On a busy machine, programs live longer: most would be killed before their first push.
            while killed < 34 or len(lines_of(folder, "pushed")) <= 30:
                killed += 1
                pause_s *= 1.0 if killed <= 34 else 1.2
                time.sleep(0.02 + pause_s * chance.random())
                victim = chance.choice(list(programs.alive))
                command = programs.alive[victim]
                programs.end(victim)
                programs.start(command, chance.choice(MODES))
            programs.end_all()
            # Who is left works off what is there, and takes over what the dead held.
            for mode in MODES:
                programs.start("work", mode)

            def is_done() -> bool:
                counts = queue.stats().counts.get("mail", {})
                return not counts.keys() - {"done"}

            wait_until(is_done, patience_s=30)
        jobs = all_jobs(queue)
    check_promises(folder, jobs, killed, f"seed {seed}")


def check_promises(folder: Path, jobs: list[bucketq.Job[str]], killed: int, hint: str) -> None:
    """Compare what is in the queue with what the programs were promised."""
    by_id = {job.id: job for job in jobs}
    assert len(by_id) == len(jobs), hint
    assert set(Counter(job.payload for job in jobs).values()) == {1}, hint
    promised = lines_of(folder, "pushed")
    assert len(promised) > 30, hint
    for job_id, payload in promised:
        assert by_id[job_id].payload == payload, hint
    # A producer that was killed can have left at most one push without an answer.
    assert len(jobs) - len(promised) <= 2 * killed, hint
    for job in jobs:
        assert (job.status, job.outcome) == ("done", "completed"), hint
    claims = Counter((job_id, attempt) for job_id, attempt in lines_of(folder, "claimed"))
    assert set(claims.values()) == {1}, hint
    completions = Counter(job_id for job_id, _ in lines_of(folder, "completed"))
    assert set(completions.values()) == {1}, hint
    for job_id, attempt in lines_of(folder, "completed"):
        assert by_id[job_id].attempt == int(attempt), hint


@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c_in_a_loop_of_blocking_pushes_loses_nothing(folder: Path, mode: Mode) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    runs = 0
    with nursery(folder) as programs:
        while runs < 6 or not lines_of(folder, "pushed"):
            runs += 1
            pid = programs.start("push_until_interrupted", mode)
            log = programs.log()
            wait_until(lambda: log.exists() and log.read_text() != "", 20)  # noqa: B023
            time.sleep(max(runs, 6) * chance.random() / 60)  # Longer, until one has pushed.
            programs.end(pid, signal.SIGINT)
            assert log.read_text().splitlines()[-1] == "interrupted", f"seed {seed}"
    with bucketq.connect_sync(url_of(folder)) as queue:
        jobs = all_jobs(queue)
    promised = lines_of(folder, "pushed")
    ids = [job.id for job in jobs]
    for *batch, _ in promised:
        assert all(job_id in ids for job_id in batch), f"seed {seed}"
    # All or none of each three is there, in order, and beyond what was promised one a run.
    assert [job.payload.rsplit("-", 1)[1] for job in jobs] == ["0", "1", "2"] * (len(jobs) // 3)
    assert len({job.payload for job in jobs}) == len(jobs)
    assert len(promised) <= len(jobs) // 3 <= len(promised) + runs, f"seed {seed}"
