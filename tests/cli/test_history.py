"""``bucketq history``, ``diff`` and ``--at``: the past of a queue on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bucketq
from tests.cli.console import Console


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A queue with a history: a job is pushed, claimed and completed, another cancelled."""
    url = f"file://{tmp_path}/queue.json"
    with bucketq.connect_sync(url, mode="embedded") as queue:
        queue.configure(history_retention_s=86400)
        queue.push("email", {"to": "ada"}, id="first", tags={"team": "a"})
        queue.push("index", [1, 2], id="second")
        (job,) = queue.claim("email", worker="w")
        queue.complete(job, "sent")
        queue.cancel("second")
    return url


def versions_of(console: Console, url: str) -> dict[str, int]:
    """The version of each verb."""
    lines = [json.loads(line) for line in console.ok("history", url, "--json").out.splitlines()]
    return {request["verb"]: line["version"] for line in lines for request in line["requests"]}


def test_history_lists_the_requests_of_each_version(console: Console, url: str) -> None:
    rows = [line.split() for line in console.ok("history", url).out.splitlines()]
    assert rows[0][:3] == ["VERSION", "AT", "REQUEST"]
    verbs = [row[2] for row in rows[1:] if row[2] != "-"]
    assert verbs == ["push", "push", "claim", "complete", "cancel"]
    assert all("@" in row[-1] for row in rows[1:] if row[2] != "-"), "user and host"
    of_second = console.ok("history", "ls", url, "--job", "second", "--json").out.splitlines()
    assert [json.loads(line)["requests"][0]["verb"] for line in of_second] == ["push", "cancel"]
    first = versions_of(console, url)["claim"]
    later = console.ok("history", url, "--since", str(first), "--json").out.splitlines()
    assert json.loads(later[0])["version"] == first + 1
    cut = console.ok("history", url, "--limit", "1")
    assert "there are more: --since" in cut.err


def test_show_and_ls_show_the_past(console: Console, url: str) -> None:
    versions = versions_of(console, url)
    past = json.loads(
        console.ok("show", url, "first", "--at", str(versions["claim"]), "--json").out
    )
    assert (past["status"], past["worker"]) == ("running", "w")
    assert "lease" not in past
    assert json.loads(console.ok("show", url, "first", "--json").out)["status"] == "done"
    listed = console.ok("ls", url, "--at", str(versions["claim"]), "--status", "queued", "--json")
    assert [json.loads(line)["id"] for line in listed.out.splitlines()] == ["second"]
    tagged = console.ok("ls", url, "--at", str(versions["claim"]), "--tag", "team=a").out
    assert "first" in tagged
    assert "second" not in tagged
    missing = console.run("show", url, "third", "--at", str(versions["claim"]))
    assert (missing.code, "no job 'third'" in missing.err) == (3, True)


def test_show_without_a_job_shows_what_the_queue_was(console: Console, url: str) -> None:
    before = str(versions_of(console, url)["claim"])
    console.ok("config", url, "lease_s=77")
    console.ok("pause", url)
    found = json.loads(console.ok("show", url, "--at", before, "--json").out)
    assert (found["version"], found["jobs"]) == (int(before), {"running": 1, "queued": 1})
    assert (found["paused"], found["settings"]["lease_s"]) == (False, 30)
    table = console.ok("show", url, "--at", before).out
    assert "2 jobs (1 running, 1 queued)" in table
    assert "history_retention_s" in table
    later = json.loads(console.ok("show", url, "--at", "0s", "--json").out)
    assert (later["paused"], later["settings"]["lease_s"]) == (True, 77)
    assert f"version {before} of" in console.ok("ls", url, "--at", before).err
    refused = console.run("show", url)
    assert (refused.code, "Missing argument" in refused.err) == (2, True)


def test_diff_lists_what_changed(console: Console, url: str) -> None:
    versions = versions_of(console, url)
    before, after = str(versions["claim"] - 1), str(versions["claim"])
    (line,) = console.ok("diff", url, before, after, "--json").out.splitlines()
    found = json.loads(line)
    assert (found["job"], found["change"]) == ("first", "changed")
    assert found["fields"]["status"] == ["queued", "running"]
    table = console.ok("diff", url, before, str(versions["cancel"])).out
    assert "second" in table


def test_purge_deletes_what_is_older(console: Console, url: str, tmp_path: Path) -> None:
    out = console.ok("history", "purge", url, "--before", "30d").out
    assert "begins with version" in out, "it has nothing that old"
    claimed = versions_of(console, url)["claim"]
    out = console.ok("history", "purge", url, "--before", str(claimed)).out
    assert f"begins with version {claimed}" in out
    assert min(versions_of(console, url).values()) == claimed
    ran = console.run("history", url, "--since", "1")
    assert (ran.code, "begins with version" in ran.err) == (4, True)


def test_without_a_history_the_commands_say_how_to_switch_it_on(
    console: Console, tmp_path: Path
) -> None:
    url = f"file://{tmp_path}/plain.json"
    console.ok("create", url)
    for words in (("history",), ("ls", "--at", "1"), ("diff", "1", "2")):
        ran = console.run(words[0], url, *words[1:])
        assert ran.code == 4
        assert "history_retention_s" in ran.err
