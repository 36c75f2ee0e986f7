"""A worker that is asked to finish does so, even if the broker is killed before it learns of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketq
from bucketq import BlockingQueue
from tests.chaos.fleet import Fleet
from tests.integration.test_workers import Hand, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def url(new_url: str) -> str:
    """A queue that is there, and empty."""
    with bucketq.connect_sync(new_url, mode="direct") as queue:
        # Time to kill a broker between two heartbeats.
        queue.configure(heartbeat_s=3, lease_s=30)
    return new_url


@pytest.fixture
def hand(url: str, tmp_path: Path) -> Iterator[Hand]:
    """A worker that finds brokers by the object, and starts none."""
    one = Hand(url, "remote", tmp_path / "log")
    yield one
    if one.process.poll() is None:
        one.process.kill()
    one.process.wait(60)


def name_of(queue: BlockingQueue[object], hand: Hand) -> str:
    """Wait until a worker is listed, and return its name."""
    until(lambda: hand.process.pid in [found.pid for found in queue.workers()], 60)
    return next(found.name for found in queue.workers() if found.pid == hand.process.pid)


def test_a_request_to_finish_survives_a_broker_that_is_killed(
    processes: Fleet, url: str, hand: Hand
) -> None:
    first = processes.serve(url)
    first.wait_until_leading()
    second = processes.serve(url)
    second.wait_until_serving()
    with bucketq.connect_sync(url, mode="remote", timeout_s=30) as queue:
        job = queue.push("hold", 1.0)
        hand.until_noted("hold")
        name = name_of(queue, hand)
        assert queue.drain(name) == 1
        first.kill()
        second.wait_until_leading(2)
        assert hand.ends() == 0, hand.errors()
        assert queue.wait(job, timeout_s=30) == hand.process.pid
        assert queue.workers() == []
        assert [entry.action for entry in queue.audit()] == ["configure", "drain"]


def test_the_next_worker_of_the_same_name_works_on(processes: Fleet, url: str) -> None:
    broker = processes.serve(url)
    broker.wait_until_leading()
    with bucketq.connect_sync(url, mode="remote", timeout_s=30) as queue:
        worker: Any = {"host": "h", "pid": 1, "version": "1", "up_s": 0.0}
        queue.announce("web", run_id="first", **worker)
        queue.drain("web")
        assert queue.announce("web", run_id="first", **worker) is True
        assert queue.announce("web", run_id="second", **worker) is False
        queue.announce("web", run_id="first", leaving=True, **worker)
        assert [found.id for found in queue.workers()] == ["second"]
