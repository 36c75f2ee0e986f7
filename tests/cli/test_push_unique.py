"""``bucketq push --unique``, one job and in bulk."""

from __future__ import annotations

import json

import pytest

from tests.cli.console import Console


def test_a_unique_job_is_pushed_once_and_debounced(console: Console) -> None:
    push = ("push", "URL", "index", "--unique", "user-17")
    first = console.ok(*push, "1", "--delay", "1h").out.strip()
    again = console.ok(*push, "2")
    assert (again.out.strip(), "was there already" in again.err) == (first, True)
    assert console.ok(*push, "2", "--json").json == {"id": first, "duplicate": True}
    replace = ("--unique-scope", "queued", "--replace", "both")
    assert console.ok(*push, "3", *replace).out.strip() == first
    [job] = console.ok("ls", "URL", "--json").lines
    assert (job["payload"], job["unique"], job.get("run_at")) == (3, "user-17", None)
    period = ("--unique-scope", "10m")
    second = console.ok(*push, "4", *period).out.strip()
    assert second != first
    assert console.ok(*push, "5", *period).out.strip() == second
    assert "user-17" in console.ok("show", "URL", first).out


def test_scopes_that_are_none_are_refused(console: Console) -> None:
    ran = console.run("push", "URL", "index", "1", "--unique", "u", "--unique-scope", "dead")
    assert (ran.code, "--unique-scope (queued, queued+running" in ran.err) == (2, True)
    ran = console.run("push", "URL", "index", "1", "--replace", "both")
    assert (ran.code, "give unique too" in ran.err) == (2, True)


def test_lines_of_a_file_may_have_unique_names(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketq.cli.bulk.feed_pusher._BATCH_JOBS", 10)
    lines = [
        {"kind": "index", "payload": n, "unique": f"u{n % 20}", "replace": "payload"}
        for n in range(40)
    ]
    lines[-1] |= {"unique_scope": 60}
    text = "\n".join(map(json.dumps, lines))
    (console.folder / "jobs.jsonl").write_text(text)
    console.ok("push", "URL", "--bulk", "--file", str(console.folder / "jobs.jsonl"))
    jobs = console.ok("ls", "URL", "--all", "--json").lines
    expected = [(n + 20, f"u{n}") for n in range(19)] + [(19, "u19"), (39, "u19")]
    assert [(job["payload"], job["unique"]) for job in jobs] == expected
