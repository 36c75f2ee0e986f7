"""``bucketq complete --push`` and ``bucketq release --snooze``."""

from __future__ import annotations

import json

from tests.cli.console import Console


def claim(console: Console) -> tuple[str, str]:
    job = json.loads(console.ok("claim", "URL", "--json").out)
    return job["id"], job["lease"]


def test_a_completion_pushes_jobs(console: Console) -> None:
    console.ok("push", "URL", "first", "1")
    job, lease = claim(console)
    follow_up = json.dumps({"kind": "next", "payload": {"n": 2}, "priority": 3, "id": "n2"})
    complete = ("complete", "URL", job, lease, "--push", follow_up)
    ran = console.ok(*complete, "--push", '{"kind": "log", "payload": 1}', "--json")
    pushed = json.loads(ran.out)["pushed"]
    assert pushed[0] == "n2"
    jobs = {each["id"]: each for each in console.ok("ls", "URL", "--json").lines}
    assert jobs["n2"]["payload"] == {"n": 2}
    assert [jobs[each]["kind"] for each in pushed] == ["next", "log"]
    console.ok(*complete)
    assert len(console.ok("ls", "URL", "--json").lines) == len(jobs)


def test_a_follow_up_that_is_no_job_is_refused(console: Console) -> None:
    console.ok("push", "URL", "first", "1")
    job, lease = claim(console)
    for text in ("[]", '{"kind": "next"}', '{"kind": "next", "payload": 1, "color": 2}', "{"):
        ran = console.run("complete", "URL", job, lease, "--push", text)
        assert (ran.code, "--push: " in ran.err) == (2, True)


def test_a_job_that_is_put_off_is_counted(console: Console) -> None:
    console.ok("push", "URL", "first", "1")
    for count in range(1, 3):
        job, lease = claim(console)
        console.ok("release", "URL", job, lease, "--snooze")
        [shown] = console.ok("ls", "URL", "--json").lines
        assert (shown["snoozes"], shown["status"]) == (count, "queued")
    assert "snoozes" in console.ok("show", "URL", job).out
