"""The example with checkpoints: killed half-way, it goes on where it was."""

from __future__ import annotations

import re
import time
from pathlib import Path

import bucketq
from examples.checkpoints import Checkpoints, Progress
from tests.examples.program import EXAMPLES, PATIENCE_S, Program

PRIMES = 17_984
BELOW = 200_000


def test_a_worker_that_is_killed_half_way_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    url = (tmp_path / "queue.json").as_uri()
    environ = {"BUCKETQ_URL": url, "CHECKPOINTS": str(tmp_path / "checkpoints")}
    command = [str(EXAMPLES / "checkpoints.py")]
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.configure(lease_s=4.0, heartbeat_s=0.5, grace_s=1.0)
        job = queue.push("primes", {"below": BELOW, "step": 5_000})

    with Program(command, tmp_path / "first.txt", **environ) as first:
        first.until(lambda output: "attempt 1 is at 50000" in output)
        first.kill()
    reached = [int(n) for n in re.findall(r"attempt 1 is at (\d+)", first.output())]
    assert reached[-1] < BELOW

    with Program(command, tmp_path / "second.txt", **environ) as second:
        output = second.until(lambda output: f"is at {BELOW}" in output)
        with bucketq.connect_sync(url, launch="never") as queue:
            done = until_done(queue, job)
    begins = re.search(r"attempt (\d+) begins at (\d+)", output)
    assert begins
    assert int(begins[1]) == done.attempt > 1
    # It may have been killed between the writing of a checkpoint and the telling of it.
    assert int(begins[2]) in {reached[-1], reached[-1] + 5_000}
    assert done.result == {"primes": PRIMES}
    assert done.lost_leases == 1


def test_an_older_attempt_overwrites_nothing_of_a_newer_one(tmp_path: Path) -> None:
    older, newer = (Checkpoints(tmp_path, "a/job[1]", attempt) for attempt in (1, 2))
    older.save(Progress(10, 1))
    assert newer.latest() == Progress(10, 1)
    newer.save(Progress(20, 2))
    older.save(Progress(15, 9))
    assert Checkpoints(tmp_path, "a/job[1]", 4).latest() == Progress(20, 2)
    assert older.latest() == Progress()


def until_done(queue: bucketq.BlockingQueue[object], job: str) -> bucketq.Job[object]:
    deadline = time.monotonic() + PATIENCE_S
    while (found := queue.get(job)).status != "done":
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found
