"""``bucketq batch``, and jobs that wait for others: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.console import Console


@pytest.fixture
def queue(console: Console) -> Console:
    console.ok("create", "URL")
    return console


def finish(queue: Console) -> dict[str, object]:
    job = queue.ok("claim", "URL", "--json").json
    queue.ok("complete", "URL", job["id"], job["lease"])
    found: dict[str, object] = job
    return found


def test_a_batch_is_opened_filled_and_closed(queue: Console) -> None:
    report = ("report", '{"to": "ada"}', "--max-attempts", "2")
    batch = queue.ok("batch", "open", "URL", *report).out.strip()
    for number in "12":
        queue.ok("push", "URL", "index", number, "--batch-id", batch)
    header, line = queue.ok("batch", "ls", "URL").out.splitlines()
    assert header.split()[:6] == ["ID", "STATUS", "JOBS", "COMPLETED", "FAILED", "LEFT"]
    assert line.split()[:6] == [batch, "open", "2", "0", "0", "2"]
    assert finish(queue)["batch_id"] == batch
    assert "1 of 2 jobs are left" in queue.ok("batch", "close", "URL", batch).out
    finish(queue)
    found = queue.ok("batch", "show", "URL", batch, "--json").json
    assert (found["status"], found["completed"], found["left"]) == ("done", 2, 0)
    assert "completed" in queue.ok("batch", "show", "URL", batch).out
    callback = queue.ok("show", "URL", found["callback"])
    assert f"{batch}: 2 of 2 completed" in callback.out
    done = finish(queue)
    assert (done["payload"], done["max_attempts"]) == ({"to": "ada"}, 2)


def test_a_batch_can_be_cancelled(queue: Console) -> None:
    opened = ("batch", "open", "URL", "report", "--id", "mine")
    assert queue.ok(*opened).out == queue.ok(*opened).out == "mine\n"
    assert queue.ok("batch", "cancel", "URL", "mine", "--json").json["status"] == "cancelled"
    refused = queue.run("push", "URL", "index", "1", "--batch-id", "mine")
    assert (refused.code, "no more jobs" in refused.err) == (4, True)
    assert queue.run("batch", "close", "URL", "never").code == 3
    listed = [
        json.loads(line) for line in queue.ok("batch", "ls", "URL", "--json").out.splitlines()
    ]
    assert [row["status"] for row in listed] == ["cancelled"]


def test_the_jobs_of_a_batch_are_listed_and_cancelled(queue: Console) -> None:
    queue.ok("batch", "open", "URL", "report", "--id", "mine")
    ids = [
        queue.ok("push", "URL", "index", n, "--batch-id", "mine").out.strip() for n in ("1", "2")
    ]
    queue.ok("push", "URL", "index", "3")
    listed = queue.ok("ls", "URL", "--batch-id", "mine").out.splitlines()[1:]
    assert [line.split()[0] for line in listed] == ids
    finish(queue)
    queue.ok("claim", "URL")
    assert queue.ok("cancel", "URL", "--batch-id", "mine").out == (
        "0 jobs cancelled; 1 running, asked to stop\n"
    )
    queue.ok("push", "URL", "index", "4", "--batch-id", "mine")
    assert queue.ok("cancel", "URL", "--batch-id", "mine", "--json").json == {
        "cancelled": 1,
        "requested": 0,
    }
    assert queue.run("cancel", "URL", "--batch-id", "never").code == 3
    for wrong in ((), (ids[0], "--batch-id", "mine")):
        refused = queue.run("cancel", "URL", *wrong)
        assert (refused.code, "--batch-id" in refused.err) == (2, True)


def test_a_held_job_is_shown_as_held(queue: Console) -> None:
    first = queue.ok("push", "URL", "load", "1").out.strip()
    second = queue.ok("push", "URL", "report", "2", "--after", first).out.strip()
    third = queue.ok("push", "URL", "tidy", "3", "--after", first, "--after", second).out.strip()
    lines = queue.ok("ls", "URL").out.splitlines()[1:]
    assert [line.split()[2] for line in lines] == ["queued", "held", "held"]
    assert "held: these of the queued jobs wait for others: report (1), tidy (1)" in (
        queue.ok("stats", "URL").out
    )
    assert f"{first} {second}" in queue.ok("show", "URL", third).out
    assert [finish(queue)["id"] for _ in range(3)] == [first, second, third]
    unknown = queue.run("push", "URL", "report", "1", "--after", "never")
    assert (unknown.code, "never" in unknown.err) == (3, True)


def test_lines_of_a_bulk_push_wait_and_belong_to_batches(queue: Console, tmp_path: Path) -> None:
    queue.ok("batch", "open", "URL", "report", "--id", "mine")
    lines = [
        {"kind": "load", "payload": 1, "id": "a"},
        {"kind": "load", "payload": 2, "after": ["a"], "on_failed": "run"},
    ]
    path = tmp_path / "jobs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    queue.ok("push", "URL", "--bulk", "--file", str(path), "--batch-id", "mine")
    assert queue.ok("batch", "show", "URL", "mine", "--json").json["jobs"] == 2
    assert queue.ok("stats", "URL", "--json").json["held"] == {"load": 1}
