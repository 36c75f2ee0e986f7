"""Bulk pushes in which several jobs have the same id or key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.console import Console

WORDS = ("push", "URL", "--bulk", "--file", "jobs.jsonl", "--batch", "1")


def write(console: Console, *lines: dict[str, Any]) -> None:
    text = "".join(json.dumps({"kind": "a"} | line) + "\n" for line in lines)
    (console.folder / "jobs.jsonl").write_text(text)


@pytest.mark.parametrize("what", ["key", "id"])
def test_two_lines_with_the_same_id_and_different_contents_are_named(
    console: Console, what: str
) -> None:
    write(console, {"payload": 0}, {"payload": 1, what: "x"}, {"payload": 2, what: "x"})
    ran = console.run(*WORDS)
    assert ran.code == 2
    assert f"jobs.jsonl: lines 2 and 3 have the same {what} 'x'" in ran.err
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 0


@pytest.mark.parametrize("what", ["key", "id", "unique"])
def test_two_lines_that_are_the_same_are_one_job(console: Console, what: str) -> None:
    line = {"payload": {"a": 1, "b": 2}, what: "x"}
    write(console, line, line)
    assert "2 jobs pushed, 1 of them there already" in console.ok(*WORDS).out
    assert console.ok("stats", "URL", "--json").json["totals"]["queued"] == 1
    assert console.ok(*WORDS, "--restart", "--json").json["duplicates"] == 2


def test_after_a_conflict_with_the_queue_running_again_is_not_advised(console: Console) -> None:
    console.ok("push", "URL", "a", "9", "--key", "x")
    write(console, {"payload": 0}, {"payload": 1, "key": "x"})
    ran = console.run(*WORDS)
    assert ran.code == 4
    assert "run the same command again" not in ran.err
    assert "1 line of jobs.jsonl acknowledged" in ran.err
    assert "correct the lines after line 1 in a new file" in ran.err


def test_a_conflict_between_queues_advises_to_remove_one_of_the_jobs(console: Console) -> None:
    old = Console(console.folder / "old")
    old.ok("push", "URL", "a", "1", "--key", "x")
    console.ok("push", "URL", "a", "2", "--key", "x")
    ran = console.run("import", "URL", old.url)
    assert ran.code == 4
    assert "remove the job from one of the queues" in ran.err
