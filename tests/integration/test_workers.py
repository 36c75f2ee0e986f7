"""Real workers in processes of their own: killed, stopped, hurried and blocked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import BlockingQueue, Job
from bucketq.client.blocking import UnopenedBlockingQueue
from bucketq.client.connect_arguments import Mode
from tests.environ import ROOT, child_path

ENVIRONMENT = {**os.environ, "PYTHONPATH": child_path(ROOT)}
SHORT = {"lease_s": 2.0, "heartbeat_s": 0.4, "grace_s": 1.0, "clock_margin_s": 1.0}
MODES: list[Mode] = ["direct", "auto"]


class Hand:
    """A worker in a process of its own, and what it wrote."""

    def __init__(self, url: str, mode: Mode, log: Path) -> None:
        self._log = log
        self._errors = log.with_suffix(".errors")
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-W",
                    "error",
                    "-m",
                    "tests.integration.worker_program",
                    url,
                    mode,
                    str(log),
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": child_path(ROOT)},
                stdin=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def lines(self, word: str) -> list[list[str]]:
        text = self._log.read_text() if self._log.exists() else ""
        return [line.split()[1:] for line in text.splitlines() if line.split()[0] == word]

    def errors(self) -> str:
        return self._errors.read_text()

    def until_noted(self, word: str, count: int = 1) -> list[list[str]]:
        until(lambda: len(self.lines(word)) >= count or self.process.poll() is not None)
        assert self.process.poll() is None, self.errors()
        return self.lines(word)

    def tell(self, number: signal.Signals, *, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def ends(self, patience_s: float = 60) -> int:
        return self.process.wait(patience_s)


class Yard:
    """A queue in a file, and workers that are ended with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = (folder / "queue.json").as_uri()
        self.hands: list[Hand] = []

    def open(self, **settings: Any) -> UnopenedBlockingQueue[Any]:
        with bucketq.connect_sync(self.url, mode="direct") as queue:
            queue.configure(archive_after_s=3600, spill_bytes=16 << 20, **settings)
        return bucketq.connect_sync(self.url, mode="direct", worker="test")

    def hire(self, mode: Mode) -> Hand:
        hand = Hand(self.url, mode, self._folder / f"log-{len(self.hands)}")
        self.hands.append(hand)
        return hand


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    one = Yard(tmp_path)
    yield one
    for hand in one.hands:
        if hand.process.poll() is None:
            hand.process.kill()
        hand.process.wait(60)


def until(is_so: Callable[[], bool], patience_s: float = 30) -> None:
    late_s = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < late_s, "it took too long"
        time.sleep(0.02)


def until_done(queue: BlockingQueue[Any], job_id: str) -> Job[Any]:
    until(lambda: queue.get(job_id).status == "done")
    return queue.get(job_id)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("mode", MODES)
def test_the_job_of_a_killed_worker_is_done_by_another(yard: Yard, mode: Mode) -> None:
    with yard.open(lease_s=1.0, heartbeat_s=0.3, grace_s=0.5, clock_margin_s=0.5) as queue:
        job_id = queue.push("hold", 0.5)
        first = yard.hire(mode)
        first.until_noted("hold")
        first.tell(signal.SIGKILL)
        first.ends()
        second = yard.hire(mode)
        job = until_done(queue, job_id)
        assert job.result == second.process.pid
        assert (job.attempt, job.lost_leases, job.failures) == (2, 1, 0)


def test_a_killed_worker_leaves_no_process_of_a_handler_behind(yard: Yard) -> None:
    with yard.open() as queue:
        queue.push("process", 600)
        hand = yard.hire("direct")
        ((pid,),) = hand.until_noted("process")
        assert is_alive(int(pid))
        hand.tell(signal.SIGKILL)
        hand.ends()
        until(lambda: not is_alive(int(pid)), 10)


def test_a_killed_worker_leaves_no_program_of_a_handler_behind(yard: Yard) -> None:
    with yard.open() as queue:
        queue.push("family", 600)
        hand = yard.hire("direct")
        (pids,) = hand.until_noted("family")
        assert all(is_alive(int(pid)) for pid in pids)
        hand.tell(signal.SIGKILL)
        hand.ends()
        until(lambda: not any(is_alive(int(pid)) for pid in pids), 10)


@pytest.mark.parametrize("mode", MODES)
def test_sigterm_lets_handlers_finish_and_claims_no_more(yard: Yard, mode: Mode) -> None:
    with yard.open() as queue:
        ids = [queue.push("hold", 1.5) for _ in range(4)]
        hand = yard.hire(mode)
        hand.until_noted("hold", 2)
        hand.tell(signal.SIGTERM)
        assert hand.ends() == 0
        jobs = [queue.get(job_id) for job_id in ids]
        assert sorted(job.status for job in jobs) == ["done", "done", "queued", "queued"]
        assert [job.attempt for job in jobs if job.status == "queued"] == [0, 0]
        assert not hand.lines("stopped")
        assert not hand.errors()


@pytest.mark.parametrize("mode", MODES)
def test_a_second_sigterm_stops_handlers_and_gives_their_jobs_back(yard: Yard, mode: Mode) -> None:
    with yard.open() as queue:
        ids = [queue.push(kind, 600, max_attempts=1) for kind in ("hold", "thread")]
        hand = yard.hire(mode)
        hand.until_noted("hold")
        hand.until_noted("thread")
        hand.tell(signal.SIGTERM)
        time.sleep(0.3)  # Else the two may be one: that is how signals are.
        assert hand.process.poll() is None
        hand.tell(signal.SIGTERM)
        assert hand.ends() == 0
        assert len(hand.lines("stopped")) == 1
        for job_id in ids:
            job = queue.get(job_id)
            assert (job.status, job.failures, job.lost_leases) == ("queued", 0, 0)
        assert not hand.errors()


def test_signals_to_the_whole_group_disturb_no_handler_in_a_process(yard: Yard) -> None:
    with yard.open() as queue:
        job_id = queue.push("process", 1.5)
        hand = yard.hire("direct")
        hand.until_noted("process")
        hand.tell(signal.SIGTERM, group=True)
        assert hand.ends() == 0
        job = queue.get(job_id)
        assert (job.status, job.result, job.failures) == ("done", "not disturbed", 0)
        assert not hand.errors()


def test_a_handler_that_blocks_the_loop_for_longer_than_a_lease_keeps_it(tmp_path: Path) -> None:
    """Also where the broker that judges leases runs in the same process as the handler."""
    every_mode: list[Mode] = ["direct", "embedded", "auto"]
    yards: list[Yard] = []
    try:
        for mode in every_mode:
            folder = tmp_path / mode
            folder.mkdir()
            yard = Yard(folder)
            yards.append(yard)
            with yard.open(**SHORT) as queue:
                queue.push("block", 5)
            yard.hire(mode)
        for yard in yards:
            yard.hands[0].until_noted("block")
        for yard in yards:
            with bucketq.connect_sync(yard.url, mode="direct", worker="test") as queue:
                assert queue.claim(wait_s=5.0 if yard is yards[0] else 0.0) == []
                (job,) = queue.jobs().jobs
                job = until_done(queue, job.id)
                assert (job.attempt, job.result, job.lost_leases) == (1, "done at last", 0)
    finally:
        for yard in yards:
            for hand in yard.hands:
                hand.process.kill()
                hand.process.wait(60)


@pytest.mark.parametrize("mode", MODES)
def test_handlers_push_what_follows_by_queues_of_their_own(yard: Yard, mode: Mode) -> None:
    """Two event loops in one process talk to brokers, and nothing is said to the terminal."""
    with yard.open() as queue:
        queue.push("chain", 8)
        hand = yard.hire(mode)
        until(lambda: queue.stats().counts["chain"].get("done") == 9)
        hand.tell(signal.SIGTERM)
        assert hand.ends() == 0
        assert not hand.errors()
