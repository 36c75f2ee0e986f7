"""``bucketq consumer`` and ``claim --lease``: output and exit codes."""

from __future__ import annotations

import json

import pytest

import bucketq
from tests.cli.console import Console


@pytest.fixture
def queue(console: Console) -> Console:
    console.ok("create", "URL")
    console.ok("push", "URL", "index", "1")
    with bucketq.connect_sync(f"file://{console.path}", mode="direct") as opened:
        opened.open_consumer("spark-orders")
        opened.open_consumer("spark-orders")
        opened.claim_batch("spark-orders", 2, 1)
        opened.open_consumer("idle")
    return console


def test_consumers_are_listed_with_their_pending_jobs(queue: Console) -> None:
    header, first, second = queue.ok("consumer", "list", "URL").out.splitlines()
    assert header.split() == ["NAME", "EPOCH", "BATCH", "PENDING", "USED"]
    assert first.split()[:4] == ["spark-orders", "2", "1", "1"]
    assert second.split()[:4] == ["idle", "1", "0", "0"]


def test_a_script_reads_consumers_from_json_without_a_secret(queue: Console) -> None:
    lines = queue.ok("consumer", "list", "URL", "--json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["name"], row["pending"]) for row in rows] == [("spark-orders", 1), ("idle", 0)]
    counts = ["apart", "at", "batch", "epoch", "failures", "name", "pending", "prepared"]
    assert sorted(rows[0]) == counts


def test_removing_a_consumer_releases_its_jobs(queue: Console) -> None:
    assert "is removed" in queue.ok("consumer", "remove", "URL", "spark-orders").out
    again = queue.run("consumer", "remove", "URL", "spark-orders")
    assert again.code == 3
    assert "there is no consumer spark-orders" in again.err
    assert queue.run("consumer", "remove", "URL", "spark-orders", "--json").json == {
        "name": "spark-orders",
        "removed": False,
    }
    assert queue.ok("claim", "URL").out


def test_a_claim_may_set_the_length_of_its_lease(console: Console) -> None:
    console.ok("create", "URL")
    console.ok("push", "URL", "index", "1")
    console.ok("push", "URL", "index", "2")
    assert console.ok("claim", "URL", "--lease", "2h", "--json").json["lease_s"] == 7200
    assert "lease_s" not in console.ok("claim", "URL", "--json").json
