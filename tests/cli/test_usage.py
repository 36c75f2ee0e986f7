"""Command lines that lack something, and how that is told."""

from __future__ import annotations

import json

import pytest

from tests.cli.console import Console


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("ls", "URL", "--limit", "0", "--json"), "--limit"),
        (("ls", "URL", "--json", "--frobnicate"), "--frobnicate"),
        (("show", "URL", "--json"), "JOB"),
        (("stats", "--json"), "URL"),
        (("frobnicate", "--json"), "frobnicate"),
        (("--frobnicate", "stats", "--json"), "--frobnicate"),
        (("archive", "frobnicate", "--json"), "frobnicate"),
        (("archive", "ls", "URL", "--limit", "x", "--json"), "--limit"),
    ],
)
def test_a_wrong_command_line_is_told_as_json_where_json_is_asked_for(
    console: Console, words: tuple[str, ...], reason: str
) -> None:
    ran = console.run(*words)
    assert (ran.code, ran.out) == (2, "")
    told = json.loads(ran.err)
    assert (told["kind"], told["exit_code"]) == ("UsageError", 2)
    assert reason in told["error"]


def test_a_wrong_command_line_is_told_as_text_elsewhere(console: Console) -> None:
    for words in (("ls", "URL", "--limit", "0"), ("push", "URL", "k", "1", "--", "2", "--json")):
        ran = console.run(*words)
        assert ran.code == 2
        assert ran.err.startswith("Usage: ")


def test_a_single_address_is_the_other_one_where_the_variable_tells_the_queue(
    console: Console,
) -> None:
    env = {"BUCKETQ_URL": console.url}
    old = Console(console.folder / "old")
    old.ok("push", "URL", "k", "1", "--id", "job")
    assert console.run("import", old.url, "--batch", "5", env=env).code == 0
    assert console.ok("show", "URL", "job", "--json").json["payload"] == 1
    copy = (console.folder / "copy.json").as_uri()
    assert console.run("backup", copy, env=env).code == 0
    assert console.run("restore", "--replace", copy, env=env).code == 0
    assert console.run("backup", "copy-2.json", env=env).code == 0
    third = (console.folder / "third.json").as_uri()
    assert console.run("restore", third, "copy-2.json", env=env).code == 0
    assert "third.json" in {path.name for path in console.folder.iterdir()}


def test_an_address_alone_is_that_of_the_queue_where_no_other_may_follow(console: Console) -> None:
    old = Console(console.folder / "old")
    old.ok("push", "URL", "k", "1")
    env = {"BUCKETQ_URL": console.url}
    assert console.run("stats", old.url, env=env).code == 0
    assert "Missing argument" in console.run("show", old.url, env=env).err
