"""How jobs are shown: page by page, on narrow terminals, and for how long they were silent."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime, timedelta

import pytest

import bucketq
from bucketq.cli import job_listing
from bucketq.cli.commands.monitoring import show
from tests.cli.console import TIMEOUT_S, Console
from tests.cli.terminal import Terminal

PAGED = """
import asyncio, pathlib
from bucketq.cli import job_listing, main
from bucketq.queue.queue import Queue

job_listing._PAGE = 2
jobs, pages = Queue.jobs, 0

async def one_page(self, **query):
    global pages
    pages += 1
    while pages > 1 and not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    return await jobs(self, **query)

Queue.jobs = one_page
main()
"""


def test_a_list_shows_its_first_page_while_the_next_is_read(console: Console) -> None:
    for number in range(5):
        console.ok("push", "URL", "k", "1", "--id", f"job-{number}")
    path = console.folder / "stdout"
    with path.open("wb") as stdout:
        process = console.launch(
            sys.executable, "-c", PAGED, "ls", console.url, "--all", stdout=stdout
        )
    until = time.monotonic() + TIMEOUT_S
    while "job-1" not in path.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    assert "job-2" not in path.read_text()
    (console.folder / "go").touch()
    assert process.wait(TIMEOUT_S) == 0
    listed = [line.split()[0] for line in path.read_text().splitlines()]
    assert listed == ["JOB", *(f"job-{number}" for number in range(5))]


def test_a_narrow_terminal_shows_which_jobs_there_are_rather_than_their_payloads(
    console: Console,
) -> None:
    pushed = console.ok("push", "URL", "email", '{"to": "ada@example.org"}').out.strip()
    with Terminal(console, "ls", "URL", columns=60) as terminal:
        assert terminal.finish() == 0
    titles, job, *_ = terminal.screen()
    assert titles.split()[:3] == ["JOB", "KIND", "STATUS"]
    assert job.split()[:3] == [pushed, "email", "queued"]
    assert "ada" not in terminal.text


def test_dead_jobs_are_listed_over_several_pages(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_listing, "_PAGE", 2)
    for number in range(3):
        console.ok("push", "URL", "k", "1", "--id", f"job-{number}")
        job = console.ok("claim", "URL", "--json").json
        console.ok("fail", "URL", job["id"], job["lease"], "--no-retry")
    listed = console.ok("dead", "URL")
    assert [line.split()[0] for line in listed.out.splitlines()] == [
        "JOB",
        *(f"job-{number}" for number in range(3)),
    ]
    assert listed.err == ""
    assert console.run("dead", "URL", "--limit", "1").err == "there are more: --after 1\n"


def test_a_running_job_shows_for_how_long_its_worker_has_been_silent(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.ok("push", "URL", "k", "1", "--id", "job")
    assert "silent" not in console.ok("show", "URL", "job").out
    job = console.ok("claim", "URL", "--json").json
    later = datetime.fromisoformat(job["heartbeat_at"]) + timedelta(seconds=39)
    monkeypatch.setattr(show, "now", lambda: later)
    assert re.search(r"^silent +39s$", console.ok("show", "URL", "job").out, re.MULTILINE)
    assert "silent s" not in console.ok("show", "URL", "job").out
    console.ok("complete", "URL", "job", job["lease"])
    assert "silent" not in console.ok("show", "URL", "job").out


def test_the_size_of_a_deep_queue_names_its_segments(console: Console) -> None:
    console.deepen()
    found = console.ok("stats", "URL", "--json").json
    assert "samples" not in found
    assert found["totals"]["queued"] == 101
    assert found["segments"] > 0
    assert found["head_bytes"] == console.path.stat().st_size
    assert found["bytes"] == found["head_bytes"] + found["segment_bytes"]
    last = console.ok("stats", "URL").out.splitlines()[-1]
    assert re.search(r"KiB \([\d.]+ KiB in the object, [\d.]+ KiB in \d+ segments?\), 0 keys", last)


def test_the_progress_of_a_running_job_is_shown(console: Console) -> None:
    console.ok("push", "URL", "render", "1", "--id", "mine")
    with bucketq.connect_sync(console.url, mode="direct", worker="w") as queue:
        (job,) = queue.claim()
        queue.heartbeat(job, progress={"mine": bucketq.Progress(40, 100, "frames")})
        assert "w, 40/100 frames (40%)" in console.ok("ls", "URL").out
        assert "40/100 frames (40%)" in console.ok("show", "URL", "mine").out
        (shown,) = console.ok("ls", "URL", "--json").lines
        assert shown["progress"] == {"done": 40, "total": 100, "note": "frames"}
        queue.heartbeat(job, progress={"mine": bucketq.Progress(1.5)})
        assert "w, 1.5 " in console.ok("ls", "URL").out
