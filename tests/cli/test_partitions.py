"""Commands on a queue with partitions, which they treat as one queue."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import bucketq
from tests.cli.console import Console, finish


@pytest.fixture
def url(console: Console, tmp_path: Path) -> str:
    """A queue with three partitions and six jobs, which are in all of them."""
    url = (tmp_path / "queue.json").as_uri()
    console.ok("create", f"{url}?partitions=3", "lease_s=60")
    with bucketq.connect_sync(url, mode="direct") as queue:
        for number in range(6):
            queue.push("mail", number, id=f"job-{number}")
    return url


def test_a_queue_is_created_listed_and_deleted_as_one(
    console: Console, url: str, tmp_path: Path
) -> None:
    objects = [tmp_path / "queue" / "partitions" / str(n) / "partition.json" for n in (1, 2)]
    assert all(path.exists() for path in objects)
    _, row = console.ok("queues", f"{tmp_path.as_uri()}/").out.splitlines()
    assert row.split()[:2] == ["queue", "6"]
    shown = console.ok("ls", url, "--json").out.splitlines()
    assert {json.loads(line)["id"] for line in shown} == {f"job-{n}" for n in range(6)}
    stats = json.loads(console.ok("stats", url, "--json").out)
    assert (stats["totals"]["queued"], stats["partitions"]) == (6, 3)
    assert "3 partitions" in console.ok("stats", url).out
    assert "job-4" in console.ok("show", url, "job-4").out
    assert "60" in console.ok("config", url).out
    assert console.run("create", f"{url}?partitions=3").code == 4
    console.ok("delete", url, "--yes")
    assert not any(path.exists() for path in [*objects, tmp_path / "queue.json"])


def test_jobs_are_claimed_and_completed_by_the_lease_that_is_shown(
    console: Console, url: str
) -> None:
    for _ in range(6):
        job = json.loads(console.ok("claim", url, "--json").out)
        console.ok("heartbeat", url, job["id"], job["lease"])
        console.ok("complete", url, job["id"], job["lease"], "--result", '"done"')
    assert json.loads(console.ok("stats", url, "--json").out)["totals"]["done"] == 6
    assert console.ok("archive", "flush", url).code == 0
    assert len(console.ok("archive", "ls", url, "--json").out.splitlines()) == 6
    assert json.loads(console.ok("wait", url, "job-3").out) == "done"


def test_another_number_of_partitions_is_refused(console: Console, url: str) -> None:
    for number, reason in {"4": "has 3 partitions", "x": "is a number", "65": "1 to 64"}.items():
        ran = console.run("push", f"{url}?partitions={number}", "mail", "1")
        assert (ran.code, reason in ran.err) == (2, True), ran.err


@pytest.mark.parametrize("command", ["export", "doctor", "gc", "repair"])
def test_commands_on_one_object_must_be_told_which(
    console: Console, url: str, command: str
) -> None:
    ran = console.run(command, url)
    assert (ran.code, f"{url}?partition=2" in ran.err) == (2, True)
    assert console.run(command, f"{url}?partition=2").code == 0
    assert console.run(command, f"{url}?partition=3").code == 2


def test_a_partition_is_saved_and_restored(console: Console, url: str, tmp_path: Path) -> None:
    for index in range(3):
        console.ok("backup", f"{url}?partition={index}", f"copy-{index}.json")
    (tmp_path / "queue" / "partitions" / "1" / "partition.json").unlink()
    ran = console.run("stats", url)
    assert (ran.code, "(partition 1)" in ran.err) == (3, True)
    console.ok("restore", f"{url}?partition=1", "copy-1.json")
    console.ok("restore", f"{url}?partition=0", "copy-0.json", "--replace")
    assert json.loads(console.ok("stats", url, "--json").out)["totals"]["queued"] == 6


def test_serve_serves_all_partitions(console: Console, url: str) -> None:
    process = console.start("serve", f"jobs={url}")
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("serving jobs at 127.0.0.1:"), line
    address = line.split()[-1]
    assert json.loads(console.ok("stats", f"bucketq://{address}/jobs", "--json").out)["partitions"]
    console.ok("push", f"bucketq://{address}/jobs", "mail", "7")
    console.ok("push", f"bucketq://{address}/", "mail", "8")
    ran = console.run("push", f"bucketq://{address}/jobs?partitions=2", "mail", "1")
    assert (ran.code, "3 partitions" in ran.err) == (2, True)
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 0
    assert json.loads(console.ok("stats", url, "--json").out)["totals"]["queued"] == 8


def test_a_folder_is_served_with_all_partitions(console: Console, url: str, tmp_path: Path) -> None:
    process = console.start("serve", f"{tmp_path.as_uri()}/")
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert line.startswith("serving 1 queue under"), line
    with bucketq.connect_sync(url, mode="remote") as queue:
        assert len(queue.claim(limit=6)) == 6
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 0


def test_a_file_is_pushed_in_batches(console: Console, url: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(10_100)))
    ran = console.ok("push", url, "mail", "--bulk", "-f", "lines")
    assert "has partitions" in ran.err
    console.ok("push", url, "mail", "--bulk", "-f", "lines")
    assert json.loads(console.ok("stats", url, "--json").out)["totals"]["queued"] == 10_106
