"""``bucketq queues``, and ``serve`` with a folder."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import bucketq
from tests.cli.console import Console, finish


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with two queues, one of them paused, and a file that is no queue."""
    with bucketq.connect_sync((tmp_path / "mail.json").as_uri(), mode="direct") as queue:
        queue.push("k", 1)
    with bucketq.connect_sync((tmp_path / "reports" / "daily.json").as_uri(), mode="direct") as q:
        q.pause()
    (tmp_path / "notes.json").write_text('["nothing of ours"]')
    return f"{tmp_path.as_uri()}/"


def test_queues_are_listed_with_depth_age_and_broker(console: Console, folder: str) -> None:
    shown = console.ok("queues", folder).out.splitlines()
    assert shown[0].split() == ["QUEUE", "QUEUED", "RUNNING", "DEAD", "OLDEST", "BROKER"]
    mail, daily = (line.split() for line in shown[1:])
    assert (mail[:4], mail[-1]) == (["mail", "1", "0", "0"], "none")
    assert daily == ["reports/daily", "(paused)", "0", "0", "0", "none"]
    rows = [json.loads(line) for line in console.ok("queues", folder, "--json").out.splitlines()]
    assert [row["url"] for row in rows] == [f"{folder}mail.json", f"{folder}reports/daily.json"]
    assert [row["queued"] for row in rows] == [1, 0]
    assert rows[0]["oldest_queued_s"] >= 0


def test_a_queue_that_cannot_be_read_is_reported_and_the_others_listed(
    console: Console, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text('{"format":1,"is":"damaged"}')
    ran = console.run("queues", folder)
    assert (ran.code, "mail" in ran.out) == (1, True)
    assert "bad: " in ran.err
    assert "1 queue under" in ran.err
    ran = console.run("queues", folder, "--json")
    assert ["error" in json.loads(line) for line in ran.out.splitlines()] == [True, False, False]


def test_an_empty_folder_and_an_address_of_one_queue(console: Console, tmp_path: Path) -> None:
    assert "no queue under" in console.ok("queues", f"{tmp_path.as_uri()}/").err
    ran = console.run("queues", tmp_path.as_uri())
    assert (ran.code, "ends in a slash" in ran.err) == (2, True)


def test_serve_serves_the_queues_of_a_folder(console: Console, folder: str) -> None:
    process = console.start("serve", folder)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith(f"serving 2 queues under {folder} at 127.0.0.1:"), line
    address = line.split()[-1]
    assert console.ok("queues", folder).out.count(address) == 2
    shown = console.ok("stats", f"bucketq://{address}/reports.daily")
    assert "paused" in shown.out
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert (ended.code, "Traceback" in ended.err) == (0, False), ended
    assert console.ok("queues", folder).out.count("none") == 2
