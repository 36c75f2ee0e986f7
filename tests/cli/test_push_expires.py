"""``bucketq push --expires``, one job and in bulk."""

from __future__ import annotations

import json

from tests.cli.console import Console


def test_a_job_is_pushed_with_an_expiry(console: Console) -> None:
    job_id = console.ok("push", "URL", "quote", "1", "--expires", "1h").out.strip()
    [job] = console.ok("ls", "URL", "--json").lines
    assert "expires_at" in job
    assert "expires" in console.ok("show", "URL", job_id).out
    ran = console.run("push", "URL", "quote", "1", "--expires", "5s", "--delay", "5s")
    assert (ran.code, "would never run" in ran.err) == (2, True)


def test_waiting_for_a_job_that_expires_says_so(console: Console) -> None:
    push = ("push", "URL", "quote", "1", "--expires", "0.2s", "--wait", "30s")
    ran = console.run(*push)
    assert (ran.code != 0, "was not started before it expired" in ran.err) == (True, True)


def test_lines_of_a_file_may_expire(console: Console) -> None:
    lines = [{"kind": "quote", "payload": n, "expires_in_s": 3600} for n in range(3)]
    del lines[1]["expires_in_s"]
    (console.folder / "jobs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    push = ("push", "URL", "--bulk", "--file", str(console.folder / "jobs.jsonl"))
    console.ok(*push)
    jobs = console.ok("ls", "URL", "--all", "--json").lines
    assert ["expires_at" in job for job in jobs] == [True, False, True]
    console.ok(*push, "--expires", "2h", "--restart")
    jobs = console.ok("ls", "URL", "--all", "--json").lines
    assert ["expires_at" in job for job in jobs[3:]] == [True, True, True]
