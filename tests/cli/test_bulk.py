"""Bulk pushes: interrupted at any time and resumed, with no job lost or duplicated."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bucketq import Queue, connect_sync
from tests.cli.console import Console, finish

LINES = 8000


def write_lines(path: Path, count: int) -> None:
    path.write_bytes(b"".join(b'{"n":%d}\n' % number for number in range(count)))


def payloads(console: Console, url: str = "URL") -> Counter[int]:
    jobs = console.ok("ls", url, "--all", "--json").lines
    return Counter(job["payload"]["n"] for job in jobs)


def progress_of(console: Console, name: str = "jobs.jsonl") -> Any:
    return json.loads((console.folder / f"{name}.bucketq-progress").read_bytes())


def wait_until_begun(console: Console, process: subprocess.Popen[bytes], jobs: int) -> None:
    """Wait until a bulk push has done something, but not all."""
    path = console.folder / "jobs.jsonl.bucketq-progress"
    until = time.monotonic() + 40
    while time.monotonic() < until and process.poll() is None:
        if path.exists() and progress_of(console)["done"][2] > jobs:
            return
        time.sleep(0.005)


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_a_bulk_push_resumes_after_it_was_stopped(console: Console, blow: signal.Signals) -> None:
    write_lines(console.folder / "jobs.jsonl", LINES)
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl", "--batch", "160")
    ends, done = [], 0
    for _ in range(2):
        process = console.start(*words)
        wait_until_begun(console, process, done)
        process.send_signal(blow)
        ends.append(finish(process))
        done = progress_of(console)["done"][2]
    assert all(ran.code == (130 if blow == signal.SIGINT else -9) for ran in ends), ends
    assert 0 < done < LINES
    if blow == signal.SIGINT:
        assert "run the same command again" in ends[0].err
        assert "Traceback" not in ends[0].err
    last = console.ok(*words, "--json").json
    assert (last["jobs"], last["lines"], last["finished"]) == (LINES, LINES, True)
    assert payloads(console) == Counter(range(LINES))


def test_a_batch_that_landed_unnoticed_and_was_archived_is_not_pushed_again(
    console: Console,
) -> None:
    write_lines(console.folder / "jobs.jsonl", 30)
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl", "--batch", "10")
    console.ok(*words)
    with connect_sync(console.url, create=False) as queue:
        for job in queue.claim(limit=30):
            queue.complete(job)
        assert queue.flush_archive() == 30
    # As a kill between the second batch and the note of it would have left it.
    progress = progress_of(console)
    offset = len(b"".join(b'{"n":%d}\n' % number for number in range(10)))
    progress |= {"done": [offset, 10, 10], "pending": [2 * offset + 10, 20, 20]}
    progress |= {"finished_at": None}
    path = console.folder / "jobs.jsonl.bucketq-progress"
    path.write_text(json.dumps(progress))
    assert console.ok(*words, "--json").json["pushed"] == 10
    assert payloads(console) == Counter(range(20, 30))


def test_a_batch_that_never_landed_is_pushed(console: Console) -> None:
    write_lines(console.folder / "jobs.jsonl", 20)
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl", "--batch", "10")
    console.ok("create", "URL")
    console.ok(*words)
    progress = progress_of(console)
    progress |= {"done": [0, 0, 0], "pending": [80, 10, 10], "finished_at": None}
    (console.folder / "jobs.jsonl.bucketq-progress").write_text(json.dumps(progress))
    console.ok("delete", "URL", "--yes")
    console.ok("create", "URL")
    ran = console.run(*words)
    assert (ran.code, "recreated" in ran.err) == (2, True)
    incarnation = json.loads(b"{" + console.path.read_bytes().split(b"\n")[1][:-1] + b"}")
    progress["incarnation"] = incarnation["incarnation"]
    (console.folder / "jobs.jsonl.bucketq-progress").write_text(json.dumps(progress))
    console.ok(*words)
    assert payloads(console) == Counter(range(20))


def test_running_it_once_more_does_nothing_and_restart_pushes_again(console: Console) -> None:
    write_lines(console.folder / "jobs.jsonl", 5)
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl")
    assert console.ok(*words).out == "5 jobs pushed\n"
    again = console.ok(*words)
    assert again.out == "nothing to push\n"
    assert "--restart" in again.err
    assert console.ok(*words, "--restart").out == "5 jobs pushed\n"
    assert payloads(console) == Counter(list(range(5)) * 2)
    write_lines(console.folder / "jobs.jsonl", 6)
    changed = console.run(*words)
    assert (changed.code, "the source has changed" in changed.err) == (2, True)
    other = console.run("push", "URL", "m", "--bulk", "--file", "jobs.jsonl")
    assert (other.code, "has changed" in other.err) == (2, True)
    fresh = console.ok(*words, "--progress", "elsewhere")
    assert fresh.out == "6 jobs pushed\n"


def test_the_same_lines_without_the_progress_file_are_recognised_in_the_queue(
    console: Console,
) -> None:
    write_lines(console.folder / "jobs.jsonl", 5)
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl")
    console.ok(*words)
    (console.folder / "jobs.jsonl.bucketq-progress").unlink()
    console.ok(*words)
    assert payloads(console) == Counter(range(5))


def test_each_line_may_be_a_job_with_its_own_fields(console: Console) -> None:
    lines = [
        {"kind": "a", "payload": {"n": 1}, "priority": 5, "tags": {"x": "y"}, "id": "mine"},
        {"kind": "b", "payload": {"n": 2}, "key": "once"},
        {"kind": "b", "payload": {"n": 2}, "key": "once"},
        {"kind": "c", "payload": "AAE=", "payload_encoding": "base64", "max_attempts": 1},
        {"kind": "c", "payload": {"n": 3}, "run_at": "2099-01-01T00:00:00Z"},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    (console.folder / "jobs.jsonl").write_text(text)
    console.ok("push", "URL", "--bulk", "--file", "jobs.jsonl", "--tag", "z=0", "-p", "9")
    jobs = console.ok("ls", "URL", "--json").lines
    assert [job["kind"] for job in jobs] == ["a", "b", "c", "c"]
    assert (jobs[0]["id"], jobs[0]["priority"]) == ("mine", 5)
    assert jobs[0]["tags"] == {"x": "y", "z": "0"}
    assert (jobs[1]["priority"], jobs[1]["key"]) == (9, "once")
    assert jobs[2]["payload_encoding"] == "base64"
    assert jobs[3]["run_at"] == "2099-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"kind": "a", "payload": 1', "not JSON"),
        (b'{"kind": "a"}', "payload"),
        (b'{"kind": "a b", "payload": 1}', "bad kind"),
        (b'{"kind": "a", "payload": 1, "prioritty": 3}', "prioritty"),
        (b'{"kind": "a", "payload": 1, "priority": "high"}', "priority"),
        (b'{"kind": "a", "payload": "!", "payload_encoding": "base64"}', "base64"),
        (b'"\xff"', "line 3"),
        (b'{"kind": "a", "payload": [1e400]}', "number out of range"),
        (b'{"kind": "a", "payload": %s}' % (b"7" * 5000), "integer value out of range"),
        (b'{"kind": "a", "payload": "%s"}' % (b"x" * 3_000_000), "payload too large"),
    ],
)
def test_a_bad_line_is_named_before_anything_is_pushed(
    console: Console, line: bytes, reason: str
) -> None:
    good = b'{"kind": "a", "payload": 1}\n'
    (console.folder / "jobs.jsonl").write_bytes(good * 2 + line + b"\n" + good)
    console.ok("create", "URL", "max_payload_bytes=2000000")
    ran = console.run("push", "URL", "--bulk", "--file", "jobs.jsonl", "--batch", "1")
    assert ran.code == 2
    assert "line 3" in ran.err
    assert reason in ran.err
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 0


def test_a_payload_that_no_worker_can_decode_is_rejected_from_stdin_too(console: Console) -> None:
    for number in (b"1e400", b"-1e400", b"7" * 5000):
        ran = console.run("push", "URL", "n", "--bulk", stdin=b"1\n" + number + b"\n")
        assert ran.code == 2
        assert "stdin, line 2: no worker in Python can decode it" in ran.err


def test_lines_from_stdin_are_pushed_as_they_come(console: Console) -> None:
    ran = console.ok("push", "URL", "n", "--bulk", "--json", stdin=b'{"n":1}\n{"n":2}')
    assert ran.json["pushed"] == 2
    assert payloads(console) == Counter([1, 2])
    assert list(console.folder.glob("*.bucketq-progress")) == []
    bad = console.run("push", "URL", "n", "--bulk", "--batch", "1", stdin=b'{"n":3}\n{"n":\n')
    assert bad.code == 2
    assert "line 2" in bad.err
    assert "1 line of stdin acknowledged" in bad.err


def test_ctrl_c_ends_a_push_that_waits_for_lines(console: Console) -> None:
    process = console.start("push", "URL", "n", "--bulk", "--batch", "1", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'{"n":1}\n{"n":2}\n')
    process.stdin.flush()
    until = time.monotonic() + 30
    while time.monotonic() < until and (
        not console.path.exists() or console.path.read_bytes().count(b'"n":1') == 0
    ):
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    ran = finish(process, b"")
    assert ran.code == 130
    assert "of stdin acknowledged" in ran.err
    assert "Traceback" not in ran.err


def test_a_full_queue_is_reported_and_the_push_resumes_later(console: Console) -> None:
    console.ok("create", "URL", "max_jobs=25")
    write_lines(console.folder / "jobs.jsonl", 40)
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl", "--batch", "10")
    ran = console.run(*words)
    assert ran.code == 4
    assert "queue full" in ran.err
    assert "20 lines of jobs.jsonl acknowledged" in ran.err
    console.ok("config", "URL", "max_jobs=100")
    assert console.ok(*words).out == "20 jobs pushed, 20 were pushed before\n"
    assert payloads(console) == Counter(range(40))


def test_options_for_a_single_job_are_rejected_with_bulk(console: Console) -> None:
    for words in (
        ("push", "URL", "k", "1", "--bulk"),
        ("push", "URL", "k", "--bulk", "--id", "a"),
        ("push", "URL", "k", "--bulk", "--key", "a"),
        ("push", "URL", "k", "--bulk", "--as", "text"),
        ("push", "URL", "k", "--bulk", "--restart"),
        ("push", "URL", "k", "1", "--restart"),
        ("push", "URL", "k", "--bulk", "--file", "nowhere.jsonl"),
        ("push", "URL", "k", "--bulk", "--file", "."),
    ):
        ran = console.run(*words)
        assert ran.code == 2, (words, ran)
    assert not console.path.exists() or payloads(console) == Counter()


def test_a_file_that_stands_for_the_kind_is_rejected_with_a_hint(console: Console) -> None:
    write_lines(console.folder / "jobs.jsonl", 3)
    for words in (("jobs.jsonl", "--bulk"), ("n", "jobs.jsonl", "--bulk")):
        ran = console.run("push", "URL", *words)
        assert ran.code == 2
        assert "write --bulk --file jobs.jsonl" in ran.err
    assert not console.path.exists()
    assert console.ok("push", "URL", "jobs.jsonl", "7").out, "a single job may have any kind"


def test_an_empty_stdin_is_mentioned(console: Console) -> None:
    ran = console.ok("push", "URL", "n", "--bulk", stdin=b"")
    assert ran.out == "0 jobs pushed\n"
    assert "stdin was empty; --file names" in ran.err


def test_import_copies_the_queued_jobs_of_another_queue(console: Console) -> None:
    old = Console(console.folder / "old")
    for number in range(6):
        options = ("--id", f"job-{number}", "--priority", str(number))
        old.ok("push", "URL", "ab"[number % 2], f'{{"n": {number}}}', *options)
    old.ok("claim", "URL", "--limit", "1")
    ran = console.ok("import", "URL", old.url, "--kind", "a", "--batch", "1", "--json")
    assert ran.json["pushed"] == 2
    jobs = console.ok("ls", "URL", "--json").lines
    assert [(job["id"], job["priority"]) for job in jobs] == [("job-2", 2), ("job-4", 4)]
    again = console.ok("import", "URL", old.url, "--kind", "a")
    assert again.out == "0 jobs pushed, 2 were pushed before\n"
    old.ok("push", "URL", "a", '{"n": 6}', "--id", "job-6")
    later = console.ok("import", "URL", old.url, "--kind", "a")
    assert later.out == "1 job pushed, 2 were pushed before\n"
    console.ok("import", "URL", old.url)
    assert payloads(console) == Counter(range(1, 7))
    assert console.run("import", "URL", console.url).code == 2
    assert console.run("import", "URL", (console.folder / "no.json").as_uri()).code == 3
    assert console.run("import", "URL", old.url, "--status", "lost").code == 2


def test_import_reads_the_output_of_ls_and_of_the_archive(console: Console) -> None:
    old = Console(console.folder / "old")
    for number in range(3):
        old.ok("push", "URL", "k", f'{{"n": {number}}}')
    old.ok("claim", "URL")
    listed = old.ok("ls", "URL", "--all", "--json").out
    console.ok("import", "URL", "-", stdin=listed.encode())
    assert payloads(console) == Counter([1, 2])
    (console.folder / "all.jsonl").write_text(listed)
    words = ("import", "URL", "all.jsonl", "--status", "queued", "--status", "running")
    assert console.ok(*words).out == "3 jobs pushed, 2 of them there already\n"
    assert payloads(console) == Counter([0, 1, 2])


def make_deep(console: Console, count: int) -> None:
    """Push jobs to a queue that keeps most of them in segments."""
    console.ok("create", "URL", "spill_bytes=3000")
    path = console.folder / "jobs.jsonl"
    write_lines(path, count)
    console.ok("push", "URL", "n", "--bulk", "--file", str(path), "--batch", "50")
    assert console.ok("stats", "URL", "--json").json["segments"] > 1


def test_import_copies_a_deep_queue(console: Console) -> None:
    old = Console(console.folder / "old")
    make_deep(old, 400)
    old.ok("claim", "URL", "--limit", "3")
    console.ok("create", "URL", "spill_bytes=3000")
    assert console.ok("import", "URL", old.url, "--batch", "50", "--json").json["pushed"] == 397
    copied = [job["id"] for job in console.ok("ls", "URL", "--all", "--json").lines]
    listed = old.ok("ls", "URL", "--all", "--status", "queued", "--json").lines
    assert copied == [job["id"] for job in listed]
    again = console.ok("import", "URL", old.url)
    assert again.out == "0 jobs pushed, 397 were pushed before\n"


def test_a_bulk_push_to_a_deep_queue_reads_only_the_jobs_of_the_batch_in_doubt(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_deep(console, 300)

    async def refuse(_: Queue[Any]) -> None:
        pytest.fail("the whole queue was read")

    monkeypatch.setattr(Queue, "snapshot", refuse)
    # As a kill between the third batch and the note of it would have left it.
    progress = progress_of(console)
    ends = [len(b"".join(b'{"n":%d}\n' % n for n in range(count))) for count in (100, 150)]
    progress |= {"done": [ends[0], 100, 100], "pending": [ends[1], 150, 150], "finished_at": None}
    (console.folder / "jobs.jsonl.bucketq-progress").write_text(json.dumps(progress))
    words = ("push", "URL", "n", "--bulk", "--file", "jobs.jsonl", "--batch", "50")
    assert console.ok(*words, "--json").json["pushed"] == 150
    assert payloads(console) == Counter(range(300))
