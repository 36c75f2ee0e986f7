"""``bucketq work --spark``, stopped by a signal while a handler runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import bucketq
from bucketq import JobSpec
from tests.spark.features import fresh, records

PATIENCE_S = 120
TASKS = """
import bucketq
from tests.spark import sample_handlers

worker = bucketq.Worker(concurrency=1, mode="direct")
worker.handler("wait")(sample_handlers.wait_for)
"""


def signalled_command(master: str, folder: Path, environ: Mapping[str, str]) -> None:
    """Let a handler begin, signal the command, and check that it finishes this job alone."""
    (folder / "tasks.py").write_text(TASKS)
    begun = {"number": 0, "mark": str(folder / "x")}
    url = fresh(folder, JobSpec(kind="wait", payload=begun, id="a"))
    words = ["work", "tasks:worker", "--url", url, "--spark", master, "--burst"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bucketq.cli", *words],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while not (folder / "x.begun").exists():
            assert time.monotonic() < until, "the handler did not begin"
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "SIGTERM" not in (line := process.stderr.readline()):
            assert line, "it did not log the signal"
        with bucketq.connect_sync(url, mode="direct") as queue:
            queue.push("wait", {"number": 1}, id="b")
        (folder / "x.go").touch()
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert out == "1 attempt: 1 done\n"
    jobs = {job.id: job for job in records(url)}
    assert bytes(jobs["a"].result or b"") == b'"waited"'
    assert jobs["b"].attempt == 0
