"""The program in the guide for operators saves the jobs of a damaged queue."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bucketq
from bucketq import JobSpec
from tests.cli.console import TIMEOUT_S, Console
from tests.environ import ROOT

STATUSES = ("--status", "queued", "--status", "running")
"""As the guide says."""


def save_jobs(folder: Path) -> str:
    page = (ROOT / "docs" / "guides" / "operations.md").read_text("utf-8")
    [program] = re.findall(
        r"^```python\n(# save_jobs\.py\n.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return ran.stdout


def fill(url: str) -> None:
    """Push jobs of every sort, and put into the queue what is not a job but names a kind."""
    with bucketq.connect_sync(url, mode="direct") as queue:
        queue.limit(kind="limited", running=1)
        queue.schedule("tick", "ping", None, every_s=300)
        with queue.batch(on_done=JobSpec(kind="callback", payload=1), batch_id="nightly") as batch:
            batch.push("member", 2**60)
        queue.push("bytes", b"\x00\xff")
        large = queue.push("large", "x" * 100_000)
        queue.push("odd", {"batch_id": "kept"}, id='a "quoted" \\ id')
        queue.push("running", 1, unique="u", group="g", tags={"a": "b"}, key="k", priority=3)
        queue.claim("running")
        queue.push("waits", 1, after=[large])
        queue.push("last", 1, delay_s=3600)


@pytest.mark.shallow
def test_the_jobs_of_a_truncated_queue_are_saved(console: Console) -> None:
    fill(console.url)
    whole = console.path.read_bytes()
    console.path.write_bytes(whole[: whole.rindex(b'"kind":"last"') + 30])
    assert console.run("stats", "URL").code == 6
    assert save_jobs(console.folder).startswith("large payload: 01")
    saved = console.folder / "saved.jsonl"
    other = Console(console.folder / "new")
    refused = console.run("import", other.url, str(saved), *STATUSES)
    assert (refused.code, "cannot wait for jobs" in refused.err) == (3, True), refused.err
    lines = saved.read_text("utf-8").splitlines()
    edited = console.folder / "edited.jsonl"
    edited.write_text("\n".join(line for line in lines if '"after"' not in line), "utf-8")
    console.ok("import", other.url, str(edited), *STATUSES)
    with bucketq.connect_sync(other.url, mode="direct") as queue:
        jobs = {job.kind: job for job in queue.jobs().jobs}
    assert set(jobs) == {"member", "bytes", "odd", "running"}
    assert (jobs["member"].payload, jobs["bytes"].payload) == (2**60, b"\x00\xff")
    assert (jobs["odd"].id, jobs["odd"].payload) == ('a "quoted" \\ id', {"batch_id": "kept"})
    assert (jobs["running"].status, jobs["running"].group) == ("queued", "g")


def test_the_jobs_of_segments_are_saved_once(console: Console) -> None:
    console.ok("create", "URL", "spill_bytes=2000")
    with bucketq.connect_sync(console.url, mode="direct") as queue:
        queue.push_many(JobSpec(kind="deep", payload=number) for number in range(300))
        queue.claim(limit=20)
        assert queue.stats().segments
    console.path.write_bytes(console.path.read_bytes()[:-10])
    assert save_jobs(console.folder) == ""
    other = Console(console.folder / "new")
    console.ok("import", other.url, "saved.jsonl", *STATUSES)
    with bucketq.connect_sync(other.url, mode="direct") as queue:
        assert sorted(job.payload for job in queue.jobs(limit=1000).jobs) == list(range(300))
