"""``bucketq schedule``: output and exit codes."""

from __future__ import annotations

import json

import pytest

from tests.cli.console import Console

CRON = ("--cron", "0 3 * * *", "--timezone", "Europe/Berlin")


@pytest.fixture
def queue(console: Console) -> Console:
    console.ok("create", "URL")
    return console


def test_a_schedule_is_added_changed_and_left_as_it_is(queue: Console) -> None:
    add = ("schedule", "add", "URL", "nightly", "report", '{"days": 1}')
    assert "is created" in queue.ok(*add, *CRON).out
    assert "is unchanged" in queue.ok(*add, *CRON).out
    assert queue.ok(*add, *CRON, "--missed", "all", "--json").json == {
        "name": "nightly",
        "result": "changed",
    }


def test_schedules_are_listed_with_their_next_time(queue: Console) -> None:
    queue.ok("schedule", "add", "URL", "nightly", "report", *CRON, "--tag", "team=a")
    options = ("--every", "5m", "--jitter", "30s", "--alone", "--missed", "skip", "-p", "3")
    queue.ok("schedule", "add", "URL", "tick", "ping", '"x"', *options)
    queue.ok("schedule", "pause", "URL", "tick")
    header, first, second = queue.ok("schedule", "ls", "URL").out.splitlines()
    assert header.split() == ["NAME", "KIND", "DUE", "MISSED", "NEXT", "LAST", "JOB"]
    assert first.split()[:2] == ["nightly", "report"]
    assert "0 3 * * * Europe/Berlin" in first
    assert first.rstrip().endswith(":00:00Z")
    assert "every 300 s" in second
    assert "paused" in second
    nightly, tick = [
        json.loads(line) for line in queue.ok("schedule", "ls", "URL", "--json").out.splitlines()
    ]
    assert nightly["next_at"][13:] in {":00:00Z", ":00:00+00:00"}
    assert (nightly["payload"], nightly["tags"]) == (None, {"team": "a"})
    assert (tick["payload"], tick["every_s"], tick["jitter_s"]) == ("x", 300.0, 30.0)
    assert (tick["missed"], tick["alone"], tick["priority"]) == ("skip", True, 3)
    assert (tick["paused"], tick["next_at"]) == (True, None)


def test_a_schedule_is_run_now_paused_resumed_and_removed(queue: Console) -> None:
    queue.ok("schedule", "add", "URL", "tick", "ping", "7", "--every", "1h")
    queue.ok("schedule", "pause", "URL", "tick")
    job = queue.ok("schedule", "run", "URL", "tick").out.strip()
    shown = queue.ok("show", "URL", job, "--json").json
    assert (shown["kind"], shown["payload"]) == ("ping", 7)
    assert "is resumed" in queue.ok("schedule", "resume", "URL", "tick").out
    assert "is removed" in queue.ok("schedule", "rm", "URL", "tick").out
    assert queue.run("schedule", "rm", "URL", "tick").code == 3
    assert queue.run("schedule", "rm", "URL", "tick", "--json").json["removed"] is False


@pytest.mark.parametrize("verb", ["pause", "resume", "run"])
def test_a_schedule_that_is_not_there_is_said_so(queue: Console, verb: str) -> None:
    ran = queue.run("schedule", verb, "URL", "none")
    assert ran.code == 3
    assert "there is no schedule 'none'" in ran.err


def test_a_copy_has_the_schedules_and_the_restored_queue_requires_them(queue: Console) -> None:
    queue.ok("schedule", "add", "URL", "tick", "ping", "7", "--every", "1h", "--alone")
    before = queue.ok("schedule", "ls", "URL", "--json").out
    copy = str(queue.folder / "copy.json")
    queue.ok("backup", "URL", copy)
    queue.ok("schedule", "rm", "URL", "tick")
    queue.ok("restore", "URL", copy, "--replace")
    assert queue.ok("schedule", "ls", "URL", "--json").out == before
    assert json.loads(queue.path.read_text())["requires"] == ["schedules"]
