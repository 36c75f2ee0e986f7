"""Bulk pushes of large files: the command writes segments itself, and one commit adds all jobs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bucketq import connect_sync
from bucketq.codec.decode import decode
from bucketq.commit.bulk_write import BulkWrite
from bucketq.errors import UnavailableError
from bucketq.model.state import State
from tests.cli.console import Console, finish
from tests.cli.test_bulk import payloads, write_lines
from tests.environ import ROOT, child_path
from tests.servers.running import running
from tests.servers.server import ENVIRON

PUSH = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl")


@pytest.fixture(autouse=True)
def few_lines_are_many(monkeypatch: pytest.MonkeyPatch, console: Console) -> None:
    monkeypatch.setattr("bucketq.cli.bulk.feed_pusher._BATCH_JOBS", 10)
    monkeypatch.chdir(console.folder)


def head(console: Console) -> State:
    return decode(console.path.read_bytes(), "queue").state


def segments(console: Console) -> list[Path]:
    return [*console.folder.glob("queue/segments/*/*.jsonl")]


def test_all_lines_are_added_in_one_commit_and_in_order(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketq.cli.bulk.file_adoption.SEGMENT_BYTES", 5000)
    write_lines(console.folder / "jobs.jsonl", 300)
    result = console.ok(*PUSH, "--json").json
    assert (result["pushed"], result["lines"], result["finished"]) == (300, 300, True)
    state = head(console)
    assert state.version == 3, "created, reserved, adopted"
    assert len(state.cold.rows.segments) > 3
    assert len(state.reservations) == len(state.jobs) == 0
    jobs = console.ok("ls", "URL", "--all", "--json").lines
    assert [job["payload"]["n"] for job in jobs] == [*range(300)]
    assert console.ok(*PUSH, "--json").json["pushed"] == 0
    assert "every row of the queue is in one place" in console.ok("doctor", "URL", "--deep").out


def test_a_run_that_was_killed_after_its_commit_is_not_repeated(console: Console) -> None:
    write_lines(console.folder / "jobs.jsonl", 30)
    console.ok(*PUSH)
    with connect_sync(console.url, create=False) as queue:
        jobs = queue.claim(limit=30)
        assert all(queue.complete_many(jobs))
        assert queue.flush_archive() == 30
    (console.folder / "jobs.jsonl.bucketq-progress").unlink()
    result = console.ok(*PUSH, "--json").json
    assert (result["jobs"], result["finished"]) == (30, True)
    assert payloads(console) == Counter()
    console.ok(*PUSH, "--restart")
    assert payloads(console) == Counter(range(30))


def test_a_file_that_was_pushed_in_batches_is_not_adopted(console: Console) -> None:
    write_lines(console.folder / "jobs.jsonl", 30)
    console.ok(*PUSH, "--batch", "7")
    (console.folder / "jobs.jsonl.bucketq-progress").unlink()
    console.ok(*PUSH)
    assert payloads(console) == Counter(range(30))


def test_a_wrong_line_is_reported_and_nothing_is_pushed(console: Console) -> None:
    path = console.folder / "jobs.jsonl"
    write_lines(path, 30)
    path.write_bytes(path.read_bytes() + b"{wrong\n")
    ran = console.run(*PUSH)
    assert ran.code != 0
    assert "line 31" in ran.err
    assert payloads(console) == Counter()
    assert len(head(console).reservations) == 0


def test_a_queue_without_room_takes_nothing(console: Console) -> None:
    console.ok("create", "URL", "max_jobs=20")
    write_lines(console.folder / "jobs.jsonl", 30)
    ran = console.run(*PUSH)
    assert ran.code != 0
    assert "max_jobs" in ran.err
    assert payloads(console) == Counter()
    console.ok("config", "URL", "max_jobs=40")
    console.ok(*PUSH)
    assert payloads(console) == Counter(range(30))


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "own"},
        {"key": "k"},
        {"unique": "u"},
        {"delay_s": 5},
        {"run_at": "2030-01-01T00:00:00Z"},
    ],
)
def test_a_file_with_such_a_line_is_pushed_in_batches(
    console: Console, fields: dict[str, object]
) -> None:
    lines: list[dict[str, object]] = [
        {"kind": "k", "payload": {"n": number}} for number in range(30)
    ]
    lines[20].update(fields)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (console.folder / "jobs.jsonl").write_text(text)
    ran = console.ok("push", "URL", "--bulk", "--file", "jobs.jsonl")
    assert "in batches, and not in one commit: line 21 has an id, a key, a unique" in ran.err
    assert payloads(console) == Counter(range(30))
    state = head(console)
    assert len(state.writers) == len(state.reservations) == 0


def test_a_queue_of_format_1_is_pushed_to_in_batches(console: Console) -> None:
    console.ok("create", "URL", "max_format=1")
    write_lines(console.folder / "jobs.jsonl", 30)
    assert "max_format of the queue is 1" in console.ok(*PUSH).err
    assert payloads(console) == Counter(range(30))
    assert console.path.read_bytes().startswith(b'{"format":1,')


def test_a_queue_with_a_history_is_pushed_to_in_batches(console: Console) -> None:
    console.ok("create", "URL", "history_retention_s=3600")
    write_lines(console.folder / "jobs.jsonl", 30)
    ran = console.ok(*PUSH)
    assert "in batches, and not in one commit: the queue keeps a history" in ran.err
    assert payloads(console) == Counter(range(30))
    assert len(head(console).writers) == 0
    history = console.ok("history", "URL", "--json").out
    assert history.count('"push"') == 3, "a version for each batch"


def test_an_adoption_whose_answer_was_lost_is_found_by_the_next_run(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt = BulkWrite.adopt

    async def lose(self: BulkWrite, *args: object) -> bool:
        await adopt(self, *args)  # type: ignore[arg-type]
        raise UnavailableError("the answer was lost")

    write_lines(console.folder / "jobs.jsonl", 30)
    monkeypatch.setattr(BulkWrite, "adopt", lose)
    ran = console.run(*PUSH)
    assert ran.code == 5
    assert "run the same command again" in ran.err
    monkeypatch.setattr(BulkWrite, "adopt", adopt)
    console.ok(*PUSH)
    assert payloads(console) == Counter(range(30))
    assert len(head(console).reservations) == 0


def wait_for_segments(console: Console, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None and not segments(console):
        time.sleep(0.002)


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_a_push_that_is_stopped_while_it_writes_is_made_by_the_next_run(
    console: Console, blow: signal.Signals
) -> None:
    count = 60_000
    lines = (b'{"n":%d,"text":"%b"}\n' % (number, b"x" * 150) for number in range(count))
    (console.folder / "jobs.jsonl").write_bytes(b"".join(lines))
    process = console.start(*PUSH)
    wait_for_segments(console, process)
    process.send_signal(blow)
    ended = finish(process)
    assert ended.code == (130 if blow == signal.SIGINT else -9), ended
    assert head(console).cold.rows.count("ready") == 0
    assert len(head(console).reservations) == (0 if blow == signal.SIGINT else 1)
    console.ok(*PUSH)
    state = head(console)
    assert state.cold.rows.count("ready") == count
    assert len(state.reservations) == 0


STEPS = {"created": 1, "reserved": 2, "first segment": 3, "second segment": 4, "adopted": 6}
"""Which write of the command is which: 150 lines are three segments."""


@pytest.fixture(params=["file", pytest.param("seaweedfs", marks=pytest.mark.servers)])
def anywhere(
    request: pytest.FixtureRequest, console: Console, monkeypatch: pytest.MonkeyPatch
) -> Console:
    if request.param != "file":
        for name, value in ENVIRON.items():
            monkeypatch.setenv(name, value)
        console.url = running(request.param).url(write_interval_s=0)
    return console


@pytest.mark.full  # Of a process that is killed while it writes, there is one above.
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_push_that_is_killed_at_any_step_is_made_by_the_next_run(
    anywhere: Console, step: str, when: str
) -> None:
    console = anywhere
    write_lines(console.folder / "jobs.jsonl", 150)
    done = console.folder / "done"
    mortal = (sys.executable, "-m", "tests.cli.mortal_push", str(STEPS[step]), when, str(done))
    ended = finish(
        console.launch(*mortal, *console.words(*PUSH), env={"PYTHONPATH": child_path(ROOT)})
    )
    assert done.exists(), ended
    assert ended.code == -signal.SIGKILL, ended
    console.ok(*PUSH)
    assert payloads(console) == Counter(range(150))
    console.ok("gc", "URL")
    report = console.ok("doctor", "URL", "--deep").out
    assert "every row of the queue is in one place" in report
