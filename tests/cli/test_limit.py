"""``bucketq limit``, and groups on the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.console import Console


def test_limits_are_set_listed_and_removed(console: Console) -> None:
    console.ok("create", "URL")
    ran = console.ok("limit", "URL", "kind=email", "running=5", "rate=100/1m")
    assert "limit kind=email is created" in ran.err + ran.out
    console.ok("limit", "set", "URL", "group=*", "running=2")
    console.ok("limit", "URL", "group=acme", "rate=7/h")
    rows = console.ok("limit", "ls", "URL", "--json").lines
    assert [(row["target"], row["running"], row["rate"], row["period_s"]) for row in rows] == [
        ("kind=email", 5, 100, 60.0),
        ("group=*", 2, None, None),
        ("group=acme", None, 7, 3600.0),
    ]
    assert "100 in 60 s" in console.ok("limit", "ls", "URL").out
    console.ok("limit", "rm", "URL", "kind=email")
    assert console.run("limit", "rm", "URL", "kind=email").code == 3
    assert len(console.ok("limit", "ls", "URL", "--json").lines) == 2


def test_a_job_that_a_limit_holds_up_says_so(console: Console) -> None:
    console.ok("create", "URL")
    console.ok("limit", "URL", "group=acme", "running=1")
    for n in range(2):
        job_id = console.ok("push", "URL", "report", str(n), "--group", "acme").out.strip()
    console.ok("push", "URL", "report", "7")
    console.ok("claim", "URL", "--limit", "10")
    assert "1 of 1 running" in console.ok("show", "URL", job_id).out
    assert "no more jobs of group=acme start now" in console.ok("stats", "URL").out
    jobs = console.ok("ls", "URL", "--group", "acme", "--json").lines
    assert [(job["group"], job["status"]) for job in jobs] == [
        ("acme", "running"),
        ("acme", "queued"),
    ]


def test_lines_of_a_file_may_have_groups(console: Console) -> None:
    lines = [{"kind": "report", "payload": n, "group": f"g{n}"} for n in range(3)]
    del lines[1]["group"]
    (console.folder / "jobs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    push = ("push", "URL", "--bulk", "--file", str(console.folder / "jobs.jsonl"))
    console.ok(*push, "--group", "other")
    jobs = console.ok("ls", "URL", "--all", "--json").lines
    assert [job["group"] for job in jobs] == ["g0", "other", "g2"]


@pytest.mark.parametrize(
    "words",
    [
        ("kind=email",),
        ("email", "running=5"),
        ("kind=email", "running=five"),
        ("kind=email", "running=5/1m"),
        ("kind=email", "rate=5"),
        ("kind=email", "rate=5/x"),
        ("kind=email", "speed=5"),
        ("kind=email", "running=5", "running=6"),
    ],
)
def test_a_limit_that_cannot_be_read_is_refused(console: Console, words: tuple[str, ...]) -> None:
    console.ok("create", "URL")
    assert console.run("limit", "URL", *words).code == 2
